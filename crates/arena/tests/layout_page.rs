//! A reader written from docs/arena-layout.md alone, in another language, finds every column.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::Command;

use rollhouse_arena::{
    Arena, ArenaIdent, AttachedArena, BatchColumns, Expected, FrameNotes, LaneNote, MIN_RING_BYTES, Patience,
    SharedArena,
};
use rollhouse_core::{ColumnMut, ColumnSpec, DType, Role};

const LANES: usize = 3;

fn columns() -> BatchColumns {
    let column = |path: &str, dtype, shape: &[usize], names: &[&str], role| ColumnSpec {
        path: path.to_owned(),
        dtype,
        shape: shape.to_vec(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        role,
    };
    BatchColumns {
        action: column("", DType::I64, &[], &[], Role::Action),
        obs: vec![
            column("arm/joints", DType::F32, &[2], &["elbow", "handgelenk ä"], Role::Obs),
            column("camera", DType::U8, &[1, 2], &[], Role::Obs),
        ],
        infos: vec![column("fuel", DType::F64, &[], &[], Role::Info)],
        final_obs: true,
    }
}

/// Fills the columns of a block with numbers that tell columns and rows apart.
fn fill(columns: &mut [ColumnMut<'_>], from: usize) {
    for (column, values) in columns.iter_mut().enumerate() {
        let number = |element: usize| (from + 20 * column + element) as u8;
        match values {
            ColumnMut::U8(values) => values.iter_mut().enumerate().for_each(|(i, v)| *v = number(i)),
            ColumnMut::F32(values) => values.iter_mut().enumerate().for_each(|(i, v)| *v = number(i).into()),
            ColumnMut::F64(values) => values.iter_mut().enumerate().for_each(|(i, v)| *v = number(i).into()),
            ColumnMut::I32(_) | ColumnMut::I64(_) => panic!("no such column here"),
        }
    }
}

fn numbers(from: usize, count: usize) -> String {
    (from..from + count).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_reader_written_from_the_page_finds_every_column() {
    let columns = columns();
    let ident = ArenaIdent { term: 4, counter: 17, autoreset: 1 };
    let (mut shared, placement) = SharedArena::create(&columns, LANES, ident, MIN_RING_BYTES).unwrap();
    let range = 0..LANES;
    let ranges = std::slice::from_ref(&range);
    let (mut arena, mut shares) = Arena::new(&columns, LANES, ranges, Patience::NONE, placement).unwrap();
    let mut end = shared.attach(6, 0).unwrap();
    let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let (outputs, inputs) = (copy(end.outputs_fd()), copy(end.inputs_fd()));
    let expected = Expected { columns: &columns, lanes: LANES, ident, generation: 6 };
    let mut trainer =
        AttachedArena::open(outputs.try_clone().unwrap(), inputs.try_clone().unwrap(), &expected).unwrap();
    for _ in 0..3 {
        trainer.actions_mut().as_i64_mut().unwrap().copy_from_slice(&[-1, 0, 5]);
        trainer.post_step();
        end.wait(None, || true).unwrap();
        arena.start();
        let number = arena.frames() as usize;
        shares[0].begin().unwrap().with_block(&range, |rows| {
            fill(rows.obs, 10 * number);
            fill(rows.infos, 10 * number + 1);
            fill(rows.final_obs, 10 * number + 2);
            rows.rewards.fill(number as f64 + 0.5);
            rows.terminated.copy_from_slice(&[1, 0, 0]);
            rows.truncated.copy_from_slice(&[0, 1, 0]);
            rows.reset.copy_from_slice(&[0, 0, 1]);
        });
        arena.wait(None).unwrap();
        let began: Vec<[u8; 32]> = (0..number).map(|record| [(16 * number + record) as u8; 32]).collect();
        let hashes = [[0, 0, 0, 0, 100 + number as u8, 0, 0, 0]];
        end.show_leaving(number == 3);
        end.answer_frame(&arena.frame(), &[], &FrameNotes { began: &began, hashes: &hashes });
        trainer.wait(None, || true).unwrap();
    }
    end.lane_rows().rewards.as_f64_mut().unwrap()[2] = 9.0;
    let both = LaneNote { began: Some([0xab; 32]), hash: Some(77) };
    end.put_lane_notes(&[0, 2], &[LaneNote { began: None, hash: Some(78) }, both]);

    for fd in [&outputs, &inputs] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_arena.py");
    let arguments = [outputs.as_raw_fd().to_string(), inputs.as_raw_fd().to_string()];
    let said = match Command::new("python3").arg(script).args(arguments).output() {
        Ok(said) => said,
        Err(error) => {
            println!("skipped: python3 cannot be started: {error}");
            return;
        }
    };
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8(said.stdout).unwrap();
    let mut wanted = vec![
        "lanes 3 autoreset 1 incarnation 4 17".to_owned(),
        "generation 6 6 answered 3 of 3".to_owned(),
        "frame 3 in slot 1".to_owned(),
    ];
    let names = "['elbow', 'handgelenk ä']";
    for (slot, frame) in [(0, Some(2)), (1, Some(3)), (2, None)] {
        let values = |add: usize, count: usize| match frame {
            Some(frame) => numbers(10 * frame + add, count),
            None => ["0"].repeat(count).join(" "),
        };
        let flags = |flags: &'static str| if frame.is_some() { flags } else { "0 0 0" };
        let rewards = match frame {
            Some(frame) => vec![format!("{frame}.5"); 3].join(" "),
            None => "0 0 9".to_owned(),
        };
        let line = |what: &str, rest: String| what.replace("slot", &format!("slot {slot}")) + &rest;
        wanted.extend([
            line("obs 0 slot path arm/joints shape [2] ", format!("names {names} = {}", values(0, 6))),
            line("obs 1 slot path camera shape [1, 2] names [] = ", values(20, 6)),
            line("info 0 slot path fuel shape [] names [] = ", values(1, 3)),
            line("final_obs 0 slot path arm/joints shape [2] ", format!("names {names} = {}", values(2, 6))),
            line("final_obs 1 slot path camera shape [1, 2] names [] = ", values(22, 6)),
            line("reward 0 slot path - shape [] names [] = ", rewards),
            line("terminated 0 slot path - shape [] names [] = ", flags("1 0 0").to_owned()),
            line("truncated 0 slot path - shape [] names [] = ", flags("0 1 0").to_owned()),
            line("reset 0 slot path - shape [] names [] = ", flags("0 0 1").to_owned()),
        ]);
    }
    let record = |byte: u8| format!("{byte:02x}").repeat(32);
    let began =
        |number: u8| (0..number).map(|index| record(16 * number + index)).collect::<Vec<_>>().join(" ");
    wanted.extend([
        format!("notes of slot 0 began {} hashes 0:102", began(2)),
        format!("notes of slot 1 began {} hashes 0:103", began(3)),
        "note of lane 0 began - hash 78".to_owned(),
        "note of lane 1 began - hash -".to_owned(),
        format!("note of lane 2 began {} hash 77", record(0xab)),
        "leaving 1".to_owned(),
        "action = -1 0 5".to_owned(),
    ]);
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
}
