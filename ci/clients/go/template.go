// Renders examples/consul-template/app.json.ctmpl as consul-template does, with what a catalogue
// would say: its functions are these, and its engine is Go's.
//
//	go run template.go FILE
package main

import (
	"encoding/json"
	"os"
	"regexp"
	"text/template"
)

type instance struct {
	Node, Address string
	Port          int
}

func main() {
	functions := template.FuncMap{
		"service": func(name string) []instance {
			return []instance{{name + ` "1"`, "127.0.0.1", 8080}, {name + "2", "2001:db8::2", 8081}}
		},
		"regexMatch": regexp.MatchString,
		"toJSON": func(value interface{}) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
	}
	whole, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	made := template.Must(template.New("body").Funcs(functions).Parse(string(whole)))
	if err := made.Execute(os.Stdout, nil); err != nil {
		panic(err)
	}
}
