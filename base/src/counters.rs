//! Counters declared once: a table of rows from which the struct, each counter's name, unit and help, the sum
//! of several and their iteration follow.

/// How the counts of two objects become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Merge {
    /// They add up.
    Sum,
    /// The larger one.
    Max,
    /// The smaller one; 0 stands for none in a list of values.
    Min,
}

/// What is known of a counter besides its value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CounterRow {
    /// By which statistics show it; unlike that of every other counter of an endpoint.
    pub name: &'static str,
    /// `packets`, `bytes`, `ns` and the like; plural.
    pub unit: &'static str,
    /// How counts of two objects become one.
    pub merge: Merge,
    /// One or two sentences.
    pub help: &'static str,
}

/// Declares a struct of `u64` counters as a table: a row is its help (the field's documentation), its field,
/// how two of them merge (`sum`, `max` or `min`) and its unit, and, where statistics show it by another name
/// than the field's, that name.
///
/// ```
/// squall_base::counters! {
///     /// What a toll counts.
///     #[derive(Clone, Debug)]
///     pub struct Toll {
///         /// Carts that passed.
///         carts: sum "carts",
///         /// The heaviest of them.
///         heaviest: max "kg" as "heaviest_cart",
///         /// The lightest of them.
///         lightest: min "kg",
///     }
/// }
/// let mut toll = Toll::default();
/// assert_eq!(toll.iter().nth(2), Some(("lightest", "kg", 0)));
/// (toll.carts, toll.heaviest, toll.lightest) = (2, 90, 50);
/// toll.merge(&Toll { carts: 1, heaviest: 60, lightest: 60 });
/// let all: Vec<_> = toll.iter().collect();
/// assert_eq!(all, [("carts", "carts", 3), ("heaviest_cart", "kg", 90), ("lightest", "kg", 50)]);
/// assert_eq!(Toll::ROWS[0].help, "Carts that passed.");
/// ```
///
/// Behind the rows there may be an `also` block of fields that are no plain counters. Their types have
/// `Default` and a method `merge(&mut self, &Self)`; iteration leaves them out.
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $merge:ident $unit:literal $(as $shown:literal)?,
            )+
        }
        $(also {
            $($(#[doc = $other_help:literal])+ $other:ident: $type:ty,)+
        })?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $help])+ pub $field: u64,)+
            $($($(#[doc = $other_help])+ pub $other: $type,)+)?
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::counters!(@start $merge),)+
                    $($($other: ::core::default::Default::default(),)+)?
                }
            }
        }

        impl $name {
            /// Every counter, in the order of [`Self::iter`].
            pub const ROWS: &'static [$crate::CounterRow] = &[
                $($crate::CounterRow {
                    name: $crate::counters!(@name $field $($shown)?),
                    unit: $unit,
                    merge: $crate::counters!(@merge $merge),
                    help: ::core::concat!($($help),+).trim_ascii_start(),
                },)+
            ];

            /// Name, unit and value of every counter, in the order of the table. The smallest of nothing is
            /// 0.
            pub fn iter(
                &self,
            ) -> impl ::core::iter::Iterator<Item = (&'static str, &'static str, u64)> + use<> {
                let values = [$($crate::counters!(@value $merge self.$field),)+];
                ::core::iter::zip(Self::ROWS, values).map(|(row, value)| (row.name, row.unit, value))
            }

            /// Makes this the count of both.
            pub fn merge(&mut self, other: &Self) {
                $($crate::counters!(@into $merge self.$field, other.$field);)+
                $($(self.$other.merge(&other.$other);)+)?
            }
        }
    };
    (@start min) => { u64::MAX };
    (@start $merge:ident) => { 0 };
    (@name $field:ident $shown:literal) => { $shown };
    (@name $field:ident) => { ::core::stringify!($field) };
    (@merge sum) => { $crate::Merge::Sum };
    (@merge max) => { $crate::Merge::Max };
    (@merge min) => { $crate::Merge::Min };
    (@value min $value:expr) => { if $value == u64::MAX { 0 } else { $value } };
    (@value $merge:ident $value:expr) => { $value };
    (@into sum $one:expr, $other:expr) => { $one = $one.saturating_add($other) };
    (@into max $one:expr, $other:expr) => { $one = $one.max($other) };
    (@into min $one:expr, $other:expr) => { $one = $one.min($other) };
}
