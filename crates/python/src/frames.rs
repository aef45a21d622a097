//! Pictures of Python envs, which are recorded beside the steps.

use numpy::{PyArray1, PyArray3, PyArrayMethods, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollhouse_env::{Image, ImageSize};
use rollhouse_replay::{Frame, FrameError};

use crate::episodes::EpisodeInfo;
use crate::failure::{chain, exception};
use crate::read_failure::Failure;

/// Packs an image, uint8 [height, width, 3], into the PNG that is recorded. Releases the interpreter lock.
#[pyfunction]
pub(crate) fn pack_frame<'py>(
    py: Python<'py>,
    image: PyReadonlyArray3<'py, u8>,
) -> PyResult<Bound<'py, PyBytes>> {
    let bad = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let &[height, width, 3] = image.shape() else {
        let message = format!("an image of shape {:?}; (height, width, 3) is recorded", image.shape());
        return Err(PyValueError::new_err(message));
    };
    let size = ImageSize::new(width, height).map_err(|error| bad(&error))?;
    let pixels = image.as_array().iter().copied().collect();
    let packed = py
        .detach(|| Image::new(size, pixels).map_err(FrameError::from).and_then(|image| Frame::pack(&image)));
    let frame = packed.map_err(|error| PyValueError::new_err(chain(&error)))?;
    Ok(PyBytes::new(py, frame.bytes()))
}

/// Returns the image in a recorded picture, uint8 [height, width, 3]. Releases the interpreter lock.
#[pyfunction]
pub(crate) fn unpack_frame<'py>(py: Python<'py>, packed: &[u8]) -> PyResult<Bound<'py, PyArray3<u8>>> {
    let unpacked = py.detach(|| Frame::of_bytes(packed)?.unpack());
    let image = unpacked.map_err(|error| exception(py, "DamagedRecordingError", chain(&error)))?;
    let shape = [image.height(), image.width(), 3];
    PyArray1::from_vec(py, image.into_pixels()).reshape(shape)
}

/// Returns the recorded pictures of an episode: each with its step, packed. The list is empty for an env that is
/// recomputed, or if no pictures were asked for.
#[pyfunction]
pub(crate) fn read_frames<'py>(
    py: Python<'py>,
    info: &EpisodeInfo,
) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
    let loaded = py.detach(|| info.0.folder.load(&info.0.info));
    let episode = loaded.map_err(|error| Failure::from(error).into_py(py))?;
    let frames = episode.steps.iter().flat_map(|steps| steps.frames.iter());
    Ok(frames.map(|(step, frame)| (step, PyBytes::new(py, frame.bytes()))).collect())
}
