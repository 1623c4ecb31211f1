//! Counters that are declared once. The struct, the name, unit and help of each counter, merging
//! and iteration follow from one table of rows.

/// The rule by which the values of one counter in two objects are merged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Merge {
    /// The sum of both values.
    Sum,
    /// The larger of both values.
    Max,
    /// The smaller of both values. A list of values shows 0 if there was no sample.
    Min,
}

/// Name, unit, merge rule and description of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CounterRow {
    /// Name of the counter in statistics. No two counters of an endpoint have the same name.
    pub name: &'static str,
    /// Unit of the counter in the plural, such as `packets`, `bytes` or `ns`.
    pub unit: &'static str,
    /// Rule by which the values of the counter in two objects are merged.
    pub merge: Merge,
    /// Description of the counter, in one or two sentences.
    pub help: &'static str,
}

/// Declares a struct of `u64` counters as a table. A row has the help (the documentation of the field),
/// the field, the rule that merges two of them (`sum`, `max` or `min`), the unit, and the name in
/// statistics if it differs from the field's.
///
/// ```
/// squall_base::counters! {
///     /// Counts of a toll station.
///     #[derive(Clone, Debug)]
///     pub struct Toll {
///         /// Carts that passed.
///         carts: sum "carts",
///         /// Weight of the heaviest cart.
///         heaviest: max "kg" as "heaviest_cart",
///         /// Weight of the lightest cart.
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
/// An `also` block behind the rows holds fields other than `u64` counters, such as histograms.
/// Their types implement `Default` and have a method `merge(&mut self, &Self)`. Iteration leaves
/// them out.
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
            /// Rows that describe the counters, in the order of [`Self::iter`].
            pub const ROWS: &'static [$crate::CounterRow] = &[
                $($crate::CounterRow {
                    name: $crate::counters!(@name $field $($shown)?),
                    unit: $unit,
                    merge: $crate::counters!(@merge $merge),
                    help: ::core::concat!($($help),+).trim_ascii_start(),
                },)+
            ];

            /// Returns name, unit and value of every counter, in the order of the table. A minimum
            /// over no samples is 0.
            pub fn iter(
                &self,
            ) -> impl ::core::iter::Iterator<Item = (&'static str, &'static str, u64)> + use<> {
                let values = [$($crate::counters!(@value $merge self.$field),)+];
                ::core::iter::zip(Self::ROWS, values).map(|(row, value)| (row.name, row.unit, value))
            }

            /// Merges the counters of `other` into these, each by its rule.
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
