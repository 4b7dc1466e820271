//! Parameters of policies and workloads: one grammar, one parser, one declaration.
//!
//! ```text
//! item    NAME[:KEY=VALUE[,KEY=VALUE..]]     stream:kernel=triad,threads=8
//! list    item[,item..]                      local,ratio:weights=4:1,gups:threads=4,page=2MiB
//! ```
//!
//! - A `:` may stand for the `,` between parameters: `hot-cold:low=3:high=6`. After a `:`, text without `=`
//!   belongs to the value before it: `ratio:weights=4:1`.
//! - In a list, `KEY=VALUE` after a comma continues the parameters of the item before it ([`split_list`]).
//! - Space around names, keys and values is ignored, and so are empty parameters.
//!
//! A policy or workload declares its parameters as [`Parameter`]s. [`Params`] is the user's input, unchecked;
//! [`Params::values`] checks it against the declaration and adds the defaults.

mod error;
mod parameter;
mod value;
mod written;

pub use error::ParamError;
pub use parameter::{Kind, Parameter, WEIGHT_MAX};
pub use value::{Value, Values};
pub use written::{Params, split_list, split_list_unless, split_name};

#[cfg(test)]
mod tests;
