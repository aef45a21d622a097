//! Segments at a target: kept whole or not at all, and never taken out damaged.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rollhouse_archive::{
    Carried, Checked, Flaw, Kept, Manifest, Selection, Shelf, Target, TargetFault, TargetOptions,
};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{AsideEpisode, Disk, Library, SegmentSummary, SetAside, segment_path};
use stage::{Play, play, run_of};
use tempfile::TempDir;

/// A folder that is gone at the end of the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn shelf(&self) -> Shelf {
        let target = Target::named(self.path().to_str().unwrap(), &TargetOptions::default()).unwrap();
        target.prepare().unwrap();
        Shelf::new(target)
    }
}

fn recorded() -> FaultyDisk {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new("/data"), &Play { lanes: 4, ..Play::new("CartPole-v1", 80) });
    disk
}

/// A segment some of whose episodes are set aside.
fn checked() -> Checked {
    let disk = recorded();
    let path = segment_path(Path::new("/data"), 1);
    let bytes = disk.read(&path).unwrap();
    let finished = SegmentSummary::of(1, &bytes).finished(&*disk.open(&path).unwrap()).unwrap();
    let mut aside = SetAside::default();
    aside.insert(AsideEpisode { offset: finished[1].offset, key: finished[1].key });
    Checked::of("node-a-0123abcd", 1, bytes, aside).unwrap()
}

#[test]
fn a_segment_is_taken_out_as_it_was_kept_and_is_kept_once() {
    let (folder, checked) = (Folder::new(), checked());
    let shelf = folder.shelf();
    assert_eq!(shelf.keep(&checked).unwrap(), Kept::Sent);
    assert_eq!(shelf.keep(&checked).unwrap(), Kept::Present);
    assert_eq!(shelf.segments().unwrap(), BTreeSet::from([checked.id.clone()]));
    assert_eq!(shelf.fetch(&checked.id).unwrap().unwrap(), checked);
}

#[test]
fn a_segment_without_its_label_counts_for_nothing_and_is_taken_up() {
    let (folder, checked) = (Folder::new(), checked());
    let shelf = folder.shelf();
    shelf.keep(&checked).unwrap();
    let of = [checked.id.label_object(), checked.id.aside_object(), checked.id.segment_object()];
    // As an attempt leaves them that was interrupted before each of its steps.
    for gone in 1..=3 {
        of[..gone].iter().for_each(|object| _ = fs::remove_file(folder.path().join(object)));
        assert!(shelf.segments().unwrap().is_empty());
        assert_eq!(shelf.keep(&checked).unwrap(), Kept::Sent);
        assert_eq!(shelf.fetch(&checked.id).unwrap().unwrap(), checked);
    }
    // And with the label left alone.
    for object in &of[1..] {
        fs::remove_file(folder.path().join(object)).unwrap();
        assert_eq!(shelf.fetch(&checked.id).unwrap(), Err(Flaw::Missing { object: object.clone() }));
        assert_eq!(shelf.keep(&checked).unwrap(), Kept::Sent);
        assert_eq!(shelf.fetch(&checked.id).unwrap().unwrap(), checked);
    }
}

#[test]
fn a_segment_is_found_damaged_whichever_bit_of_its_objects_changes_and_wherever_they_are_cut() {
    let (folder, checked) = (Folder::new(), checked());
    let shelf = folder.shelf();
    shelf.keep(&checked).unwrap();
    for object in [checked.id.label_object(), checked.id.aside_object(), checked.id.segment_object()] {
        let path = folder.path().join(&object);
        let bytes = fs::read(&path).unwrap();
        // A line end more or less says nothing else.
        let all = bytes.len() - usize::from(object.ends_with(".json"));
        for at in (0..all).step_by(1 + all / 400) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            assert!(shelf.fetch(&checked.id).unwrap().is_err(), "{object}, byte {at}");
            fs::write(&path, &bytes[..at]).unwrap();
            assert!(shelf.fetch(&checked.id).unwrap().is_err(), "{object} of {at} bytes");
        }
        fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        assert!(shelf.fetch(&checked.id).unwrap().is_err(), "{object} with a byte more");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(shelf.fetch(&checked.id).unwrap().unwrap(), checked);
    }
}

#[test]
fn what_is_damaged_or_under_another_number_is_not_checked() {
    let Checked { bytes, .. } = checked();
    assert!(Checked::of("a-0123abcd", 2, bytes.clone(), SetAside::default()).is_none());
    assert!(Checked::of("a-0123abcd", 1, bytes[..900].to_vec(), SetAside::default()).is_none());
    assert!(Checked::of("a-0123abcd", 1, Vec::new(), SetAside::default()).is_none());
}

#[test]
fn what_others_left_half_written_is_removed_and_what_is_being_written_is_not() {
    let folder = Folder::new();
    let parts = folder.path().join("parts");
    fs::create_dir_all(&parts).unwrap();
    fs::write(parts.join("1-0"), b"half").unwrap();
    let writing = fs::File::create_new(parts.join("2-0")).unwrap();
    writing.lock().unwrap();
    let shelf = folder.shelf();
    let names = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(&parts), ["2-0"]);
    assert!(shelf.segments().unwrap().is_empty(), "parts are no segments");
}

#[test]
fn the_same_segments_make_the_same_manifest_and_one_of_another_name_is_damaged() {
    let (folder, checked) = (Folder::new(), checked());
    let shelf = folder.shelf();
    let mut manifest = Manifest::new();
    manifest.add(&checked.id, checked.bytes.len() as u64);
    let name = shelf.conclude(&manifest).unwrap();
    assert_eq!(shelf.conclude(&manifest).unwrap(), name);
    let mut found = Vec::new();
    shelf.manifests(|name, manifest| found.push((name.to_owned(), manifest))).unwrap();
    assert_eq!(found, [(name.clone(), Some(manifest))]);
    fs::rename(folder.path().join(&name), folder.path().join("manifests/other.json")).unwrap();
    shelf.manifests(|_, manifest| assert_eq!(manifest, None)).unwrap();
}

#[test]
fn a_folder_that_is_no_stores_is_named_once_and_its_runs_go_apart() {
    let disk = recorded();
    let library = || Library::open(Arc::new(disk.clone()), Path::new("/data")).unwrap();
    let run = run_of(&Play::new("CartPole-v1", 80));
    let all = Carried::of(&disk, &library(), &Selection::All).unwrap();
    let again = Carried::of(&disk, &library(), &Selection::All).unwrap();
    assert_eq!((all.segments.len(), all.runs.len(), all.unsealed), (1, 1, 0));
    assert_eq!(all.segments[0].folder, again.segments[0].folder);
    assert!(all.segments[0].folder.starts_with("local-"));
    let one = Carried::of(&disk, &library(), &Selection::Runs([run.short()].into())).unwrap();
    assert_ne!(one.segments[0].folder, all.segments[0].folder, "other segments of the same numbers");
    assert_eq!(
        one.segments[0].read().unwrap().unwrap().bytes,
        all.segments[0].read().unwrap().unwrap().bytes
    );
    let none = Carried::of(&disk, &library(), &Selection::Runs([run.short() ^ 1].into())).unwrap();
    assert!(none.segments.is_empty() && none.runs.is_empty());
}

#[test]
fn a_target_is_a_path_or_a_url_of_a_known_kind() {
    let named = |text: &str| Target::named(text, &TargetOptions::default());
    for good in ["/a/b", "a", "file:///a/b"] {
        assert_eq!(named(good).unwrap().shown(), good);
    }
    for bad in ["", "file://host/a", "ftp://a/b", "https://a/b", "s3://"] {
        assert_eq!(named(bad).unwrap_err().fault, TargetFault::Name, "{bad:?}");
    }
}
