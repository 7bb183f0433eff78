//! The nginx that this module is built for: the only one that loads it.

/// `1.22.1`
pub(crate) const NGINX: &str = match nginx_sys::NGINX_VERSION.to_str() {
    Ok(text) => text,
    Err(_) => "",
};
