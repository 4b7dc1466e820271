//! Errors of the lab, with advice.

use memtide_lab::{LabError, Remedy};

/// A subject that needs tiers, on a machine where Linux sees only one.
pub const ONE_TIER: &str = "Linux sees a single tier, as every node has virtual CPUs, and neither promotes \
    nor demotes; lower --vcpus to leave slower nodes without";

/// Setup on a system without busybox.
pub const NO_BUSYBOX: &str = "busybox is missing, so guests have no sleep, sed, ls and the like, and no \
    `memtide lab shell`; install Debian's package busybox-static";

/// For an error of the lab.
pub fn message(error: &LabError) -> String {
    match error {
        LabError::Missing { remedy: Remedy::FetchedKernel, .. } => {
            format!("{error}: {}", of_remedy(&Remedy::FetchedKernel))
        }
        LabError::Missing { remedy, .. } => format!("{error}; {}", of_remedy(remedy)),
        LabError::NoProgram => format!("{error}: name the program: memtide lab run -- PROGRAM ARGS"),
        _ => error.to_string(),
    }
}

fn of_remedy(remedy: &Remedy) -> String {
    let text = match remedy {
        Remedy::Setup => "run: memtide lab setup",
        Remedy::SetupKernel(package) => {
            return format!("run: memtide lab setup --kernel {package}; to name a file, include its folder");
        }
        Remedy::SetupAsRoot => "run: sudo memtide lab setup",
        Remedy::SetupWithPip => {
            "check that python3 has pip (Debian's package python3-pip) and that PyPI is reachable, then run: \
             memtide lab setup"
        }
        Remedy::SetupDamo => "run: memtide lab setup; it prints what is missing",
        Remedy::FetchedKernel => "use Debian's kernel: memtide lab setup fetches it",
        Remedy::OtherSuite => "name a suite that has it with --suite SUITE",
        Remedy::OtherSuiteOrQemu => "name a suite that has it with --suite, or install it otherwise",
        Remedy::OtherPackageOrSuite => {
            "name another with --kernel PACKAGE or --suite SUITE, or name a kernel with --kernel FILE"
        }
        Remedy::OtherKernel => "name another with --kernel PACKAGE, or name a kernel with --kernel FILE",
        Remedy::QemuAndKernel => "install QEMU 10 or later otherwise, and name a kernel with --kernel FILE",
        Remedy::KernelImage => "use a bzImage, such as /boot/vmlinuz-VERSION",
        Remedy::BuildAgent => "build it: cargo build --release -p memtide-guest",
        Remedy::BuildTogether => {
            "build or install both together: cargo build --release -p memtide-cli -p memtide-guest"
        }
        Remedy::BuildClock => {
            "build it: cargo build --release --manifest-path crates/plugins/clock/Cargo.toml --target-dir \
             target; or run with --timing off"
        }
        Remedy::CacheFolder => "set HOME or XDG_CACHE_HOME to one",
        Remedy::StartGuest => "start one: memtide lab run --absent NODE ...",
        Remedy::ChooseRun => "choose one with --run RUN",
        Remedy::TryAgain => "try again",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(what: &str, remedy: Remedy) -> String {
        message(&LabError::Missing { what: what.to_owned(), remedy })
    }

    #[test]
    fn missing_part_names_command_to_install_it() {
        assert_eq!(of("QEMU is missing", Remedy::Setup), "QEMU is missing; run: memtide lab setup");
        assert_eq!(
            of(
                "no kernel package 'linux-image-7' has been fetched",
                Remedy::SetupKernel("linux-image-7".into())
            ),
            "no kernel package 'linux-image-7' has been fetched; run: memtide lab setup --kernel \
             linux-image-7; to name a file, include its folder"
        );
        assert_eq!(
            of("the module x is missing; CXL memory needs it", Remedy::FetchedKernel),
            "the module x is missing; CXL memory needs it: use Debian's kernel: memtide lab setup fetches it"
        );
    }

    #[test]
    fn missing_or_ambiguous_guest_names_option() {
        for (what, remedy, expected) in [
            ("none runs", Remedy::StartGuest, "none runs; start one: memtide lab run --absent NODE ..."),
            ("several run: 7, 8", Remedy::ChooseRun, "several run: 7, 8; choose one with --run RUN"),
        ] {
            assert_eq!(of(what, remedy), expected);
        }
        assert_eq!(
            message(&LabError::NoProgram),
            "nothing to run: name the program: memtide lab run -- PROGRAM ARGS"
        );
    }
}
