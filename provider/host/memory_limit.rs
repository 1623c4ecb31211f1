//! The memory limit of the process: that of its control group and of the groups around it (cgroups(7), versions 1 and 2).

use std::fs;
use std::path::{Path, PathBuf};

/// Names of the files with the memory limits of a control group, by version. A group that exceeds `memory.high` is
/// slowed down until it stands still.
const VERSION_1: &[&str] = &["memory.limit_in_bytes"];
const VERSION_2: &[&str] = &["memory.max", "memory.high"];

/// Returns the smallest limit of this process in bytes; `None` if there is none or it is not known.
pub(crate) fn read() -> Option<u64> {
    let text = |name| fs::read_to_string(Path::new("/proc/self").join(name)).ok();
    smallest(&text("cgroup")?, &text("mountinfo")?, &|file| fs::read_to_string(file).ok())
}

/// Returns the smallest memory limit of the control groups in `cgroup`, whose files are below the mounts of
/// `mountinfo`.
fn smallest(cgroup: &str, mountinfo: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = cgroup.lines().filter_map(|line| {
        let (number, line) = line.split_once(':')?;
        let (controllers, group) = line.split_once(':')?;
        let files = match controllers {
            "" if number == "0" => VERSION_2,
            _ if controllers.split(',').any(|name| name == "memory") => VERSION_1,
            _ => return None,
        };
        let (mount, folder) = folder(mountinfo, files == VERSION_2, group)?;
        let groups = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
        let files = groups.flat_map(|group| files.iter().map(move |file| group.join(file)));
        // Without a limit the file of version 2 is `max`, and that of version 1 more than any memory.
        files.filter_map(|file| read(&file)?.trim().parse().ok()).min()
    });
    limits.min().filter(|limit| *limit < 1 << 62)
}

/// Returns the directory where the control groups of a hierarchy are mounted, and the directory of `group` below it.
fn folder(mountinfo: &str, version_2: bool, group: &str) -> Option<(PathBuf, PathBuf)> {
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, place) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let fits = match kind {
            "cgroup2" => version_2,
            "cgroup" => !version_2 && options.split(',').any(|option| option == "memory"),
            _ => false,
        };
        // In a container the mount may begin at the container's group, and the group may be outside of what is mounted.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let inside = below.components().all(|part| part != std::path::Component::ParentDir);
        let place = PathBuf::from(place);
        let folder = if inside { place.join(below) } else { place.clone() };
        fits.then_some((place, folder))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
23 1 0:21 / /proc rw - proc proc rw
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    /// Returns the limit where these files are.
    fn limit(cgroup: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        let read = |file: &Path| {
            let (_, text) = files.iter().find(|(name, _)| Path::new(name) == file)?;
            Some((*text).to_owned())
        };
        smallest(cgroup, mounts, &read)
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_its_ancestors_counts() {
        let group = "9:name=systemd:/\n4:memory:/slurm/job7/step0\n1:cpu:/other\n0::/user/a\n";
        let unlimited = "9223372036854771712\n";
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let job = "/sys/fs/cgroup/memory/slurm/job7/memory.limit_in_bytes";
        let step = "/sys/fs/cgroup/memory/slurm/job7/step0/memory.limit_in_bytes";
        let files = [(root, unlimited), (job, "262144000\n"), (step, unlimited)];
        assert_eq!(limit(group, MOUNTS, &files), Some(262_144_000));
        assert_eq!(limit(group, MOUNTS, &[(root, unlimited), (step, unlimited)]), None);
        let user = ("/sys/fs/cgroup/unified/user/memory.max", "1000000\n");
        assert_eq!(limit(group, MOUNTS, &[files[1], user]), Some(1_000_000));
        let none = ("/sys/fs/cgroup/unified/user/a/memory.max", "max\n");
        assert_eq!(limit(group, MOUNTS, &[user, none]), Some(1_000_000));
        let high = ("/sys/fs/cgroup/unified/user/a/memory.high", "70000\n");
        assert_eq!(limit(group, MOUNTS, &[user, none, high]), Some(70_000));
        // The group of another controller, and files above the mount, do not count.
        let others = [
            ("/sys/fs/cgroup/memory/other/memory.limit_in_bytes", "5"),
            ("/sys/fs/cgroup/memory.max", "6"),
            ("/sys/fs/memory.max", "7"),
        ];
        assert_eq!(limit(group, MOUNTS, &others), None);
    }

    #[test]
    fn the_group_of_a_container_is_found() {
        // The mount begins at the container's group, which the process sees by its whole path.
        let mounts = "35 31 0:32 /docker/c1 /sys/fs/cgroup rw master:9 - cgroup2 cgroup2 rw\n";
        let files =
            [("/sys/fs/cgroup/memory.max", "900\n"), ("/sys/fs/cgroup/in/memory.max", "800")];
        assert_eq!(limit("0::/docker/c1", mounts, &files), Some(900));
        assert_eq!(limit("0::/docker/c1/in", mounts, &files), Some(800));
        // The process was moved to a group outside of its own namespace.
        assert_eq!(limit("0::/../c2", MOUNTS, &[]), None);
        let outside = ("/sys/fs/cgroup/unified/memory.max", "700");
        assert_eq!(limit("0::/../c2", MOUNTS, &[outside]), Some(700));
    }

    #[test]
    fn what_cannot_be_understood_limits_nothing() {
        assert_eq!(limit("", "", &[]), None);
        assert_eq!(limit("0:/\n4:memory\n:::", MOUNTS, &[]), None);
        assert_eq!(limit("0::/a", "35 31 0:32 /\n - cgroup2\n", &[]), None);
    }
}
