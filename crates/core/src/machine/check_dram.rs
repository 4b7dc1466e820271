//! Checks a DRAM device.

use super::Dram;
use super::check::{Checked, LONGEST_NS, figure, power_of_two, refuse, whole};
use super::field_error::FieldError;
use crate::units::PAGE_BYTES;

/// Maximum number of row buffers and of bank queue entries of a channel.
const CHANNEL_MAX: u64 = 1 << 14;

/// Maximum rows of a bank.
pub(super) const ROWS_MAX: u32 = 1 << 24;

pub(super) fn dram(at: &str, d: &Dram, capacity_mib: u64) -> Checked {
    let field = |name: &str| format!("{at}.{name}");
    let powers: [(&str, u64, u64); 6] = [
        ("channels", d.channels.into(), 256),
        ("ranks", d.ranks.into(), 16),
        ("bank_groups", d.bank_groups.into(), 16),
        ("banks", d.banks.into(), 64),
        ("rows", d.rows.into(), ROWS_MAX.into()),
        ("row_bytes", d.row_bytes.into(), 1 << 20),
    ];
    for (name, value, most) in powers {
        power_of_two(&field(name), value, most)?;
    }
    if u64::from(d.row_bytes) < PAGE_BYTES / 64 {
        return refuse(
            field("row_bytes"),
            format!("is {}; a row holds at least one line of 64", d.row_bytes),
        );
    }
    whole(&field("t_ck_ps"), d.t_ck_ps.into(), 1, 1_000_000)?;
    let cycles: [(&str, u16, u64); 26] = [
        ("burst", d.burst, 1),
        ("cl", d.cl, 1),
        ("cwl", d.cwl, 1),
        ("rcd", d.rcd, 1),
        ("rp", d.rp, 1),
        ("rp_ab", d.rp_ab.unwrap_or(d.rp), d.rp.into()),
        ("ras", d.ras, 1),
        ("ccd_s", d.ccd_s, 1),
        ("ccd_l", d.ccd_l, d.ccd_s.into()),
        ("ccd_l_wr", d.ccd_l_wr.unwrap_or(d.ccd_l), d.ccd_l.into()),
        ("rrd_s", d.rrd_s, 1),
        ("rrd_l", d.rrd_l, d.rrd_s.into()),
        ("faw", d.faw, 1),
        ("wtr_s", d.wtr_s, 0),
        ("wtr_l", d.wtr_l, d.wtr_s.into()),
        ("wr", d.wr, 0),
        ("rtp", d.rtp, 0),
        ("rank_switch", d.rank_switch, 0),
        ("rank_switch_rr", d.rank_switch_rr.unwrap_or(0), 0),
        ("rank_switch_rw", d.rank_switch_rw.unwrap_or(0), 0),
        ("rank_switch_wr", d.rank_switch_wr.unwrap_or(0), 0),
        ("rank_switch_ww", d.rank_switch_ww, 0),
        ("turnaround", d.turnaround, 0),
        ("activate_cycles", d.activate_cycles, 1),
        ("column_cycles", d.column_cycles, 1),
        ("rfc", d.rfc, 0),
    ];
    for (name, value, least) in cycles {
        whole(&field(name), value.into(), least, 20_000)?;
    }
    if d.refi != 0 {
        whole(&field("refi"), d.refi.into(), u64::from(d.rfc) * 2, 10_000_000)?;
    }
    whole(&field("hit_cap"), d.hit_cap.into(), 0, 20_000)?;
    whole(&field("read_queue"), d.read_queue.into(), 1, 1024)?;
    whole(&field("write_queue"), d.write_queue.into(), 2, 1024)?;
    bank_state(at, d)?;
    whole(&field("drain_high"), d.drain_high.into(), 1, d.write_queue.into())?;
    whole(&field("drain_low"), d.drain_low.into(), 0, u64::from(d.drain_high) - 1)?;
    figure(&field("controller_ns"), d.controller_ns, 0.0, LONGEST_NS)?;
    d.map_fields().map_err(|message| FieldError::new(field("address_map"), message))?;
    d.map_hashes().map_err(|message| FieldError::new(field("address_hash"), message))?;
    let device_mib = (d.channel_bytes() * u64::from(d.channels)) >> 20;
    if device_mib < capacity_mib {
        let message = format!("is {capacity_mib}, but the device has only {device_mib} MiB");
        return refuse(at.replace(".dram", ".capacity_mib"), message);
    }
    Ok(())
}

/// Checks row buffers and queues of banks.
fn bank_state(at: &str, d: &Dram) -> Checked {
    let banks = d.channel_banks() as u64;
    if let Some(subarrays) = &d.subarrays {
        let most = u64::from(d.rows).min(128).min((CHANNEL_MAX / banks).max(1));
        power_of_two(&format!("{at}.subarrays.per_bank"), subarrays.per_bank.into(), most)?;
        whole(&format!("{at}.subarrays.select"), subarrays.select.into(), 0, 20_000)?;
    }
    whole(&format!("{at}.bank_queue"), d.bank_queue.into(), 0, (CHANNEL_MAX / banks).min(256))
}
