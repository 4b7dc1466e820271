//! Ids: small integers, each a distinct type.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// As an index into a table with one entry per id.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            /// The id with this index.
            ///
            /// # Panics
            /// If the index does not fit: tables are checked against the type's range when they are made.
            fn from(index: usize) -> Self {
                Self(<$int>::try_from(index).expect("a table larger than its id type"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A NUMA memory node, numbered from 0 in the machine file's order.
    NodeId(u8), "node"
);
id!(
    /// A tier: a set of nodes of similar speed; 0 is the fastest. bmpm's "memory cluster", hinuma's "memory
    /// group".
    TierId(u8), "tier"
);
id!(
    /// An initiator (HMAT): a group of CPUs, such as a socket, that reaches memory in the same way.
    InitiatorId(u8), "initiator"
);
id!(
    /// A CPU: one simulated core, numbered through all initiators in the machine file's order.
    CpuId(u16), "cpu"
);
id!(
    /// A cache of the last shared level, numbered in the order of the CPUs that share each.
    CacheId(u16), "cache"
);
id!(
    /// A task: a process with its own address space.
    TaskId(u32), "task"
);
id!(
    /// A thread, numbered through all tasks of a run.
    ThreadId(u32), "thread"
);
id!(
    /// An action of a policy's plan, numbered through a run.
    ActionId(u64), "action"
);
