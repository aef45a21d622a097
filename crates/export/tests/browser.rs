//! The page that plays an episode, in a browser.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::stage;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};

use rollhouse_core::{DType, RecordRule};
use rollhouse_env::{Image, ImageSize, Registry};
use rollhouse_export::{Format, Settings, write};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Episode, Query, Replays, RunInfo, SeekBounds, Seeker};
use serde_json::Value;
use stage::{Play, play};
use tempfile::TempDir;

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// The longest episode of a play.
fn recorded(one: &Play) -> Arc<Episode> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    play(Arc::new(disk.clone()), dir, one);
    let replays = Replays::open(Arc::new(disk), dir).unwrap();
    let sort = "-length".parse().unwrap();
    let query = Query { sort, all_outcomes: true, limit: Some(1), ..Query::default() };
    Arc::new(replays.load(&replays.list(&query).unwrap()[0]).unwrap())
}

fn page(settings: &Settings, episode: &Arc<Episode>) -> String {
    let mut bytes = Vec::new();
    write(settings, &REGISTRY, episode, &mut bytes, &mut |_| true).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn settings() -> Settings {
    Settings::new(Format::Html)
}

/// Chromium with a folder of its own, which is gone at the end.
struct Browser {
    program: &'static str,
    folder: TempDir,
}

impl Browser {
    /// `None`, having said so, where there is no Chromium.
    fn find(test: &str) -> Option<Self> {
        let starts = |program: &&str| {
            let mut version = Command::new(program);
            version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        };
        let Some(program) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(starts) else {
            // Past what catches the output of tests that pass.
            let why = format!("{test}: skipped, because there is no chromium\n");
            std::io::stderr().write_all(why.as_bytes()).unwrap();
            return None;
        };
        Some(Self { program, folder: tempfile::tempdir().unwrap() })
    }

    /// Opens a page and gives what the browser prints.
    fn open(&self, page: &str, hash: &str, args: &[&str]) -> String {
        let path = self.folder.path().join("page.html");
        std::fs::write(&path, page).unwrap();
        let mut command = Command::new(self.program);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.args([
            "--window-size=1300,900",
            "--force-device-scale-factor=1",
            "--virtual-time-budget=20000",
        ]);
        command.arg(format!("--user-data-dir={}", self.folder.path().join("profile").display()));
        let output = command.args(args).arg(format!("file://{}{hash}", path.display())).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a script at the end of a page; what it gives. It may call `show(step)` and `key(name)`, each of which waits
    /// until the page has come to a rest.
    fn script(&self, page: &str, script: &str) -> Value {
        // Without a screen no frames are asked for.
        let page = page.replace("<main>", "<script>window.requestAnimationFrame = (next) => setTimeout(() => next(performance.now()), 16);</script><main>");
        let page = page.replace("</body>", &format!("<script>{HARNESS}\n(async () => {{ await rest(); const found = await (async () => {{ {script} }})(); document.title = 'found ' + JSON.stringify(found); }})();</script></body>"));
        let document = self.open(&page, "", &["--dump-dom"]);
        let title = document.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        let text = title.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
        let found = text.strip_prefix("found ").unwrap_or_else(|| panic!("the script did not end: {text}"));
        serde_json::from_str(found).unwrap()
    }
}

const HARNESS: &str = r#"
const rest = async () => {
  for (let same = 0, last = null; same < 3; ) {
    await new Promise((done) => setTimeout(done, 20));
    const now = document.body.dataset.step + document.getElementById("values").textContent;
    same = now === last && document.body.dataset.step !== undefined ? same + 1 : 0;
    last = now;
  }
};
const key = async (name, target = document.body) => {
  target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  await rest();
  return Number(document.body.dataset.step);
};
const show = async (step) => { location.hash = step; await rest(); };
const value = (name) => [...document.getElementById("values").rows].find((row) => row.cells[0].textContent === name && row.className === "").cells[1].textContent;
"#;

#[test]
fn a_page_shows_each_step_as_the_env_draws_it() {
    let Some(browser) = Browser::find("a_page_shows_each_step_as_the_env_draws_it") else { return };
    let episode = recorded(&Play { lanes: 1, max_steps: 150, ..Play::new("GridBreakout-v0", 400) });
    let page = page(&settings(), &episode);
    let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(&episode), &SeekBounds::default()).unwrap();
    let size = ImageSize::new(400, 400).unwrap();
    let shot = browser.folder.path().join("shot.png");
    for t in [0, 1, episode.info.length / 2, episode.info.length] {
        browser.open(&page, &format!("#{t}"), &[&format!("--screenshot={}", shot.display())]);
        seeker.seek(t).unwrap();
        let wanted = seeker.render(size).unwrap();
        assert!(is_in(&wanted, &shot), "step {t}");
    }
    seeker.seek(episode.info.length).unwrap();
    let last = seeker.render(size).unwrap();
    browser.open(&page, "#0", &[&format!("--screenshot={}", shot.display())]);
    assert!(!is_in(&last, &shot), "the comparison would pass whatever is shown");
}

/// Whether a picture stands in a screenshot, anywhere in its upper left.
fn is_in(wanted: &Image, shot: &Path) -> bool {
    let file = std::io::BufReader::new(std::fs::File::open(shot).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let channels = info.color_type.samples();
    let (width, height) = (info.width as usize, info.height as usize);
    let rows = wanted.pixels().chunks_exact(wanted.width() * 3);
    let fits = |left: usize, top: usize| {
        rows.clone().enumerate().all(|(y, row)| {
            let shown = &pixels[((top + y) * width + left) * channels..];
            row.as_chunks::<3>().0.iter().zip(shown.chunks_exact(channels)).all(|(a, b)| {
                // Of rare colours the nearest is shown.
                (0..3).all(|i| a[i].abs_diff(b[i]) <= 12)
            })
        })
    };
    let places = (0..300.min(height - wanted.height())).flat_map(|top| (0..200).map(move |left| (left, top)));
    places.filter(|&(left, _)| left + wanted.width() <= width).any(|(left, top)| fits(left, top))
}

#[test]
fn keys_and_buttons_come_to_the_steps_that_they_say() {
    let Some(browser) = Browser::find("keys_and_buttons_come_to_the_steps_that_they_say") else { return };
    let episode = recorded(&Play { lanes: 1, ..Play::new("Pendulum-v1", 201) });
    let script = r#"
      const at = [];
      for (const name of ["ArrowRight", "l", "ArrowLeft", "End", "h", "PageUp", "Home", "PageDown", "]", "["]) at.push(await key(name));
      const step = document.getElementById("step");
      for (const typed of ["120", "50%", "1,0", "x", "999"]) { await key("g"); step.value = typed; at.push(await key("Enter", step)); }
      for (const id of ["first", "forward", "forward", "back", "last"]) { document.getElementById(id).click(); await rest(); at.push(Number(document.body.dataset.step)); }
      await show(7); at.push(Number(document.body.dataset.step));
      const speed = document.getElementById("speed");
      for (const name of ["+", "+", "-"]) await key(name);
      const speeds = [speed.selectedOptions[0].text];
      for (let i = 0; i < 20; i++) await key("-");
      speeds.push(speed.selectedOptions[0].text);
      await key("?"); const helped = document.getElementById("keys").open; await key("?");
      return { at, speeds, helped, closed: !document.getElementById("keys").open };
    "#;
    let found = browser.script(&page(&settings(), &episode), script);
    let moved = [1, 2, 1, 200, 199, 179, 0, 20, 200, 0];
    let typed = [120, 100, 10, 10, 200];
    let clicked = [0, 1, 2, 1, 200];
    let at: Vec<i32> = moved.into_iter().chain(typed).chain(clicked).chain([7]).collect();
    assert_eq!(found["at"], serde_json::json!(at));
    assert_eq!(found["speeds"], serde_json::json!(["2x", "1/16x"]));
    assert_eq!((&found["helped"], &found["closed"]), (&Value::Bool(true), &Value::Bool(true)));
}

#[test]
fn values_are_those_of_the_step_forward_and_back_and_playing_ends_at_the_end() {
    let name = "values_are_those_of_the_step_forward_and_back_and_playing_ends_at_the_end";
    let Some(browser) = Browser::find(name) else { return };
    let episode = recorded(&Play { lanes: 1, ..Play::new("Pendulum-v1", 201) });
    let script = r#"
      const shown = {};
      for (const step of [199, 3, 64, 63, 65, 130, 0]) { await show(step); shown[step] = [value("reward"), value("return"), value("torque"), value("angular_velocity")]; }
      await key("+"); await key("+"); await key("+"); await key("+"); await key("+");
      await key(" ");
      while (document.getElementById("play").textContent === "pause") await new Promise((done) => setTimeout(done, 50));
      return { shown, end: document.body.dataset.step };
    "#;
    let found = browser.script(&page(&settings(), &episode), script);
    assert_eq!(found["end"], "200");
    let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(&episode), &SeekBounds::default()).unwrap();
    assert_eq!(episode.info.run.spec.obs_columns()[0].dtype, DType::F32);
    for t in [199, 3, 64, 63, 65, 130, 0] {
        let step = seeker.seek(t).unwrap();
        let shown = &found["shown"][t.to_string()];
        let real = |index: usize| shown[index].as_str().unwrap().parse::<f64>().unwrap();
        let close = |shown: f64, wanted: f64| (shown - wanted).abs() <= 1e-6 * wanted.abs().max(1e-3);
        assert!(close(real(1), step.total_reward), "{t}: {shown}");
        assert!(close(real(3), step.obs[0].number(2)), "{t}: {shown} {:?}", step.obs);
        match (step.reward, step.action) {
            (Some(reward), Some(action)) => {
                assert!(close(real(0), reward) && close(real(2), action.number(0)), "{t}: {shown}");
            }
            _ => assert_eq!((&shown[0], &shown[2]), (&"-".into(), &"-".into()), "{t}"),
        }
    }
}

#[test]
fn names_that_would_break_out_of_a_page_are_shown_as_text() {
    let name = "names_that_would_break_out_of_a_page_are_shown_as_text";
    const HOSTILE: &str = "</script></title><script>document.body.remove()</script><!--<img src=x>&amp;";
    let mut episode = Episode::clone(&recorded(&Play {
        lanes: 1,
        record: RecordRule::Trace,
        ..Play::new("CartPole-v1", 12)
    }));
    let mut run = RunInfo::clone(&episode.info.run);
    run.spec.id = HOSTILE.into();
    run.policy.name = HOSTILE.into();
    run.spec.observation_names[0] = HOSTILE.into();
    run.spec.action_names = vec![HOSTILE.into(), HOSTILE.into()];
    episode.info.run = Arc::new(run);
    let page = page(&settings(), &Arc::new(episode));
    assert!(!page.contains("<img") && !page.contains("<script>document"));
    let Some(browser) = Browser::find(name) else { return };
    let script = r#"
      await show(1);
      return { title: document.getElementById("title").textContent, policy: document.getElementById("facts").textContent, names: document.getElementById("values").textContent, warning: document.getElementById("warning").textContent };
    "#;
    let found = browser.script(&page, script);
    for place in ["title", "policy", "names", "warning"] {
        assert!(found[place].as_str().unwrap().contains(HOSTILE), "{place}: {found}");
    }
}

#[test]
fn pages_are_packed_and_hold_few_steps_at_a_time() {
    let episode = recorded(&Play { lanes: 1, max_steps: 1000, ..Play::new("Pendulum-v1", 1001) });
    let whole = page(&settings(), &episode);
    // A step has a picture of 500 x 500 pixels and 6 values.
    assert!(whole.len() < 1001 * 2000, "{} bytes", whole.len());
    let fifth = page(&Settings { every: 5, size: ImageSize::new(100, 100).ok(), ..settings() }, &episode);
    assert!(fifth.len() < 201 * 1000, "{} bytes", fifth.len());
    assert_eq!(fifth.matches("<script type=\"text/plain\" id=\"p").count(), 201_usize.div_ceil(64));
}
