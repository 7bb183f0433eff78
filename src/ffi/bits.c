/*
 * Bits of nginx's request, and of its part of an SSL connection. Their bit
 * fields begin in the middle of a word (the request's since 1.29), where
 * bindgen expects the fields behind the first ones at other places than the
 * compiler of nginx puts them: here a C compiler looks for them. And the length
 * of a variable's value, which bindgen's code goes through bit by bit.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


ngx_uint_t
peerage_header_only(ngx_http_request_t *r)
{
    return r->header_only;
}


ngx_uint_t
peerage_buffered(ngx_http_request_t *r)
{
    return r->buffered;
}


ngx_uint_t
peerage_discards_body(ngx_http_request_t *r)
{
    return r->discard_body;
}


ngx_uint_t
peerage_internal(ngx_http_request_t *r)
{
    return r->internal;
}


size_t
peerage_value_len(ngx_http_variable_value_t *v)
{
    return v->not_found ? 0 : v->len;
}


void
peerage_set_value(ngx_http_variable_value_t *v, u_char *data, size_t len)
{
    v->len = len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = data;
}


void
peerage_disable_not_modified(ngx_http_request_t *r)
{
    r->disable_not_modified = 1;
}


void
peerage_add_reference(ngx_http_request_t *r)
{
    r->count++;
}


#if (NGX_SSL)

void
peerage_no_wait_shutdown(ngx_connection_t *c)
{
    c->ssl->no_wait_shutdown = 1;
}

#endif
