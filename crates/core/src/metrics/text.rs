//! Lines of the two formats.

use std::io::Write;

use super::accept::Format;
use super::family::{Family, Kind, Value};

/// Says what a family is.
pub(super) fn metadata(out: &mut Vec<u8>, family: &Family, format: Format) {
    let Family { name, kind, unit, help, .. } = *family;
    let (ending, kind, unit) = match (format, kind) {
        (Format::OpenMetrics, kind) => ("", kind, unit),
        (Format::Text, Kind::Counter) => ("_total", Kind::Counter, None),
        // The older format has no such type.
        (Format::Text, Kind::Info) => ("_info", Kind::Gauge, None),
        (Format::Text, kind) => ("", kind, None),
    };
    write(out, format_args!("# TYPE {name}{ending} {}\n", kind.as_str()));
    if let Some(unit) = unit {
        write(out, format_args!("# UNIT {name}{ending} {unit}\n"));
    }
    write(out, format_args!("# HELP {name}{ending} {help}\n"));
}

/// One sample being written: its name, labels, and value, in this order.
pub(super) struct Line<'a> {
    out: &'a mut Vec<u8>,
    labels: usize,
}

impl<'a> Line<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, name: &str, ending: &str) -> Self {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(ending.as_bytes());
        Self { out, labels: 0 }
    }

    pub(super) fn label(self, name: &str, value: &str) -> Self {
        self.out.push(if self.labels == 0 { b'{' } else { b',' });
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"=\"");
        escape(self.out, value);
        self.out.push(b'"');
        Self { labels: self.labels + 1, ..self }
    }

    /// Labels that stand as text already, see [`labels`].
    pub(super) fn labels(self, text: &[u8]) -> Self {
        self.out.extend_from_slice(text);
        Self { labels: self.labels + 1, ..self }
    }

    pub(super) fn value(self, value: Value) {
        self.out.extend_from_slice(if self.labels == 0 { b" " } else { b"} " });
        match value {
            Value::Int(n) => integer(self.out, n),
            Value::Millis(ms) => write(self.out, format_args!("{}.{:03}", ms / 1000, ms % 1000)),
        }
        self.out.push(b'\n');
    }
}

/// Labels as they stand at the beginning of many samples.
pub(super) fn labels(labels: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    labels.iter().fold(Line::new(&mut out, "", ""), |line, (name, value)| line.label(name, value));
    out
}

/// The number as decimal digits; the formatter of the standard library takes twice as long.
fn integer(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

fn escape(out: &mut Vec<u8>, text: &str) {
    if !text.bytes().any(|b| matches!(b, b'"' | b'\\' | b'\n')) {
        return out.extend_from_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            byte => out.push(byte),
        }
    }
}

/// A vector takes everything.
fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: Value, text: &str) -> String {
        let mut out = Vec::new();
        Line::new(&mut out, "n", "_total").label("a", text).label("b", "").value(value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn labels_are_escaped_and_times_are_seconds() {
        assert_eq!(line(Value::Int(0), "x"), "n_total{a=\"x\",b=\"\"} 0\n");
        assert_eq!(
            line(Value::Int(u64::MAX), "x"),
            "n_total{a=\"x\",b=\"\"} 18446744073709551615\n"
        );
        assert_eq!(line(Value::Millis(61_007), "x"), "n_total{a=\"x\",b=\"\"} 61.007\n");
        let table = [("a\"b", r#"a\"b"#), (r"a\b", r"a\\b"), ("a\nb", r"a\nb"), ("é{}", "é{}")];
        for (text, escaped) in table {
            assert_eq!(line(Value::Int(1), text), format!("n_total{{a=\"{escaped}\",b=\"\"}} 1\n"));
        }
        let mut out = Vec::new();
        Line::new(&mut out, "n", "").value(Value::Int(7));
        assert_eq!(out, b"n 7\n");
    }
}
