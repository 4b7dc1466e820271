//! Observes a channel's commands.

/// Commands that a channel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a row.
    Activate {
        /// Bank of the channel.
        bank: u16,
        /// Row.
        row: u32,
    },
    /// Closes a row.
    Precharge {
        /// Bank of the channel.
        bank: u16,
        /// Row, which is open.
        row: u32,
    },
    /// Closes all open rows of some banks, before their refresh.
    PrechargeAll(Banks),
    /// Reads or writes a line of the open row.
    Column {
        /// Bank of the channel.
        bank: u16,
        /// Row, which is open.
        row: u32,
        /// Line of the row.
        column: u16,
        /// Whether it writes.
        write: bool,
        /// Whether the bank then precharges automatically, as early as allowed.
        auto_precharge: bool,
    },
    /// Refreshes some closed banks.
    Refresh(Banks),
}

/// Evenly spaced banks of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banks {
    /// The first bank.
    pub first: u16,
    /// Distance between banks.
    pub step: u16,
    /// Number of banks.
    pub count: u16,
}

impl Banks {
    /// The banks' numbers, in increasing order.
    pub fn iter(self) -> impl Iterator<Item = u16> + Clone {
        (0..self.count).map(move |i| self.first + i * self.step)
    }
}

/// Observes the commands of a channel; `()` does nothing.
pub trait Observer {
    /// A command was sent, in the given cycle of the command clock.
    fn command(&mut self, cycle: u64, command: Command);
}

impl Observer for () {
    #[inline]
    fn command(&mut self, _: u64, _: Command) {}
}

impl Observer for Vec<(u64, Command)> {
    fn command(&mut self, cycle: u64, command: Command) {
        self.push((cycle, command));
    }
}
