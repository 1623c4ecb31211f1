//! Libraries of device drivers, which the provider loads at run time.

use core::ffi::{CStr, c_void};

/// A loaded driver library. It stays loaded until the process ends, because drivers have threads of their own.
pub(super) struct Library(*mut c_void);

impl Library {
    /// Loads a driver library; `None` if the machine has none of this name.
    pub(super) fn load(name: &CStr) -> Option<Self> {
        // Miri has no loader to ask.
        if cfg!(miri) {
            return None;
        }
        // SAFETY: the name is terminated. Its constructors run, which is what an application means that asks for the
        // device's memory.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// Returns the address of a function of the library.
    ///
    /// # Errors
    /// A text that names the missing function.
    pub(super) fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle is of a library that is never closed, the name terminated.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() {
            return Err(format!("its library has no {}", name.to_string_lossy()));
        }
        Ok(symbol)
    }
}

/// Defines a struct of a library's functions, with their names and types, and a function that finds them all.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:literal: $type:ty;)* }) => {
        $(#[$doc])*
        struct $name {
            $($field: $type,)*
        }

        impl $name {
            /// # Errors
            /// A text that names the missing function.
            fn find(library: &$crate::device_memory::library::Library) -> Result<Self, String> {
                Ok(Self {
                    $(
                        // SAFETY: a function pointer has the size of a pointer and this one is not NULL; by the name it
                        // is exported under it is the driver's function of this signature, which its maker keeps as it
                        // is (a change gets another name).
                        $field: unsafe {
                            core::mem::transmute::<*mut core::ffi::c_void, $type>(library.symbol($symbol)?)
                        },
                    )*
                })
            }
        }
    };
}
pub(super) use functions;
