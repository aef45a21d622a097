//! The runtime that computes files of ONNX: `rten`.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rollhouse_core::panic_message;
use rten::{ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueView};

use super::OnnxError;
use super::file::Port;
use super::operators::registry;
use super::tensor::ElementType;

/// A loaded file.
pub(super) struct Net {
    model: rten::Model,
    inputs: Vec<(NodeId, ElementType)>,
    outputs: Vec<NodeId>,
    /// A thread of its own, on which the runtime computes.
    thread: Arc<ThreadPool>,
}

/// What an input is given.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Cow<'a, [f32]>,
}

/// Reason for which a net did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Runtime(#[from] rten::RunError),
    #[error("the runtime has panicked: {0}")]
    Panicked(String),
    #[error("an output has another number of numbers than one of each lane")]
    Size,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.model.fmt(f)
    }
}

impl Net {
    /// Loads a file that has these inputs and outputs.
    ///
    /// # Errors
    /// The runtime's.
    pub(super) fn load(file: Vec<u8>, inputs: &[Port], outputs: &[&str]) -> Result<Self, OnnxError> {
        let mut options = ModelOptions::with_ops(registry());
        options.prepack_weights(true);
        let loaded = catch_unwind(AssertUnwindSafe(|| options.load(file)));
        let model = loaded.map_err(|panic| OnnxError::Panicked(panic_message(&*panic)))?;
        let model = model.map_err(|error| OnnxError::Runtime(Box::new(error)))?;
        let id = |name: &str| model.find_node(name).ok_or(OnnxError::Format);
        let outputs = outputs.iter().map(|name| id(name)).collect::<Result<_, _>>()?;
        let inputs =
            inputs.iter().map(|port| Ok((id(&port.name)?, port.of))).collect::<Result<_, OnnxError>>()?;
        Ok(Self { model, inputs, outputs, thread: Arc::new(ThreadPool::with_num_threads(1)) })
    }

    /// Computes the outputs that are asked for, by their places, each as numbers one behind the other.
    ///
    /// # Errors
    /// See [`RunError`].
    pub(super) fn run(&self, given: &[Given<'_>], asked: &[usize]) -> Result<Vec<Vec<f32>>, RunError> {
        let run = || {
            let mut inputs = Vec::with_capacity(given.len());
            for ((id, of), given) in self.inputs.iter().zip(given) {
                inputs.push((*id, value(*of, given)?));
            }
            let outputs: Vec<NodeId> = asked.iter().map(|&at| self.outputs[at]).collect();
            let options = RunOptions::default().with_thread_pool(Some(self.thread.clone()));
            let values = self.model.run(inputs, &outputs, Some(options))?;
            values.into_iter().map(numbers).collect()
        };
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Err(RunError::Panicked(panic_message(&*panic))))
    }
}

/// Returns what the runtime takes of an input's numbers: it has 32 bits where ONNX has 64.
fn value<'a>(of: ElementType, given: &'a Given<'_>) -> Result<ValueOrView<'a>, RunError> {
    let Given { shape, numbers } = given;
    let value = match of {
        ElementType::F32 | ElementType::F16 | ElementType::F64 => {
            return Ok(ValueView::from_shape(shape, numbers).map_err(|_| RunError::Size)?.into());
        }
        ElementType::U8 => {
            Value::from_shape(shape, numbers.iter().map(|number| *number as u8).collect()).ok()
        }
        ElementType::I8 => {
            Value::from_shape(shape, numbers.iter().map(|number| *number as i8).collect()).ok()
        }
        ElementType::I32 | ElementType::I64 | ElementType::Bool => {
            Value::from_shape(shape, numbers.iter().map(|number| *number as i32).collect()).ok()
        }
    };
    value.map(Into::into).ok_or(RunError::Size)
}

/// Returns the numbers of an output.
fn numbers(value: Value) -> Result<Vec<f32>, RunError> {
    match value {
        Value::FloatTensor(tensor) => Ok(tensor.into_data()),
        Value::Int32Tensor(tensor) => {
            Ok(tensor.into_data().into_iter().map(|number| number as f32).collect())
        }
        Value::UInt8Tensor(tensor) => Ok(tensor.into_data().into_iter().map(f32::from).collect()),
        Value::Int8Tensor(tensor) => Ok(tensor.into_data().into_iter().map(f32::from).collect()),
        _ => Err(RunError::Size),
    }
}
