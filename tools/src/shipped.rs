//! The plans that the program contains, and the files that these plans name. Their paths begin with
//! `squall:`; [`read_text`] reads them like files.

use std::io;
use std::path::{Component, Path, PathBuf};

use squall_netsim::formats;

/// Prefix of the paths of files that this program contains.
const PREFIX: &str = "squall:";
/// Name below `plans` and text of each file. `build.rs` generates the list.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Returns the text of the file at a path; `None` if the program does not contain it.
#[must_use]
pub fn text(path: &Path) -> Option<&'static str> {
    let mut name = PathBuf::new();
    for part in path.strip_prefix(PREFIX).ok()?.components() {
        match part {
            Component::ParentDir if !name.pop() => return None,
            Component::ParentDir => {}
            part => name.push(part),
        }
    }
    FILES.iter().find(|(known, _)| Path::new(known) == name).map(|(_, text)| *text)
}

/// Reads the text of a file of the user, or of one that the program contains.
///
/// # Errors
/// See [`squall_netsim::formats::read_text`].
pub fn read_text(path: &Path) -> io::Result<String> {
    text(path).map_or_else(|| formats::read_text(path), |text| Ok(text.to_owned()))
}

/// Returns the path of a plan by its name, such as `04b-slow-link` or `large/20-strack-8192`.
#[must_use]
pub fn plan(name: &str) -> Option<PathBuf> {
    let path = Path::new(PREFIX).join(format!("{name}.toml"));
    text(&path).is_some().then_some(path)
}

/// Returns the path of a topology by its name, such as `fat-320`.
#[must_use]
pub fn topology(name: &str) -> Option<PathBuf> {
    let path = Path::new(PREFIX).join(format!("data/{name}.topo"));
    text(&path).is_some().then_some(path)
}

/// Returns the names of all topologies that the program contains.
pub fn topologies() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(name, _)| name.strip_prefix("data/")?.strip_suffix(".topo"))
}

/// Returns the paths of all plans that the program contains, sorted by name. Plans in subfolders,
/// which take long, are left out.
#[must_use]
pub fn plans() -> Vec<PathBuf> {
    let plans = FILES.iter().map(|(name, _)| *name);
    let plans = plans.filter(|name| name.ends_with(".toml") && !name.contains('/'));
    plans.map(|name| Path::new(PREFIX).join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Scene, TopologyTable, WorkloadTable};

    #[test]
    fn every_plan_that_is_shipped_can_be_prepared_from_anywhere() {
        let large = plan("large/20-strack-8192").expect("there");
        let beside = plan("large/23-high-bdp").expect("there");
        let plans = plans();
        assert!(plans.len() > 30 && plans.is_sorted(), "{plans:?}");
        for path in plans.into_iter().chain([large, beside]) {
            let plan = Plan::read(&path, false).expect("a plan");
            // Check that the files that the plan names are found.
            let point = plan.points.first().expect("a point");
            let Scene::Packets(scene) = &point.scene else { continue };
            let file = matches!(scene.topology, TopologyTable::File(_));
            if file || matches!(scene.workload, WorkloadTable::File(_)) {
                scene.prepare(&plan.folder, 1).expect("files are there");
            }
        }
        assert_eq!(plan("gone"), None);
        let data = "data/fat-320.topo";
        assert_eq!(
            text(Path::new(&format!("squall:large/../{data}"))),
            text(Path::new(&format!("squall:{data}")))
        );
        assert!(topology("fat-320").is_some());
        assert_eq!(text(Path::new("squall:../plans/data/fat-320.topo")), None, "beyond");
        assert_eq!(text(Path::new("04b-slow-link.toml")), None, "that is a file of the user's");
    }
}
