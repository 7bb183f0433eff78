//! The macro that makes a function nginx can call.

/// Defines an `unsafe extern "C"` function whose panics end as `[alert]` and the given value.
///
/// `callback! { fn get(pc: *mut T) -> ngx_int_t, or NGX_BUSY as _ { … } }`
macro_rules! callback {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty,
     or $failed:expr; $body:block) => {
        $(#[$meta])*
        $vis unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::ffi::fence::guard(stringify!($name), $failed, || $body)
        }
    };
}
