//! A file of ONNX that is written node by node.

use super::file::Port;
use super::tensor::ElementType;
use super::wire::Message;

/// The graph of a file. Values have names: those of inputs, of weights, and those that nodes give.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    metadata: Vec<(String, String)>,
}

impl Graph {
    /// Adds an input of singles. An axis without an extent is of rows.
    pub(super) fn input(&mut self, name: &str, shape: &[Option<usize>]) -> String {
        let port = Port { name: name.to_owned(), of: ElementType::F32, shape: Some(shape.to_vec()) };
        self.inputs.push(port);
        name.to_owned()
    }

    /// Gives a value out under a name.
    pub(super) fn output(&mut self, name: &str, value: &str, of: ElementType, shape: &[Option<usize>]) {
        self.node("Identity", &[value], &[], name);
        self.outputs.push(Port { name: name.to_owned(), of, shape: Some(shape.to_vec()) });
    }

    /// Adds a weight of singles, row-major.
    pub(super) fn singles(&mut self, shape: &[usize], numbers: &[f32]) -> String {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tensor(ElementType::F32, shape, &bytes)
    }

    /// Adds a weight of whole numbers along one axis.
    pub(super) fn wholes(&mut self, numbers: impl ExactSizeIterator<Item = usize>) -> String {
        let shape = [numbers.len()];
        let bytes: Vec<u8> = numbers.flat_map(|number| (number as i64).to_le_bytes()).collect();
        self.tensor(ElementType::I64, &shape, &bytes)
    }

    fn tensor(&mut self, of: ElementType, shape: &[usize], bytes: &[u8]) -> String {
        let name = format!("weight_{}", self.tensors.len());
        let mut tensor = Message::default();
        shape.iter().for_each(|extent| tensor.number(1, *extent as i64));
        tensor.number(2, of.number());
        tensor.bytes(8, name.as_bytes());
        tensor.bytes(9, bytes);
        self.tensors.push(tensor.into_bytes());
        name
    }

    /// Adds a node with attributes that are whole numbers, and returns its value.
    pub(super) fn add(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, i64)]) -> String {
        let value = format!("value_{}", self.nodes.len());
        self.node(operator, inputs, attributes, &value);
        value
    }

    fn node(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, i64)], output: &str) {
        let mut node = Message::default();
        inputs.iter().for_each(|input| node.bytes(1, input.as_bytes()));
        node.bytes(2, output.as_bytes());
        node.bytes(4, operator.as_bytes());
        for (name, whole) in attributes {
            let mut attribute = Message::default();
            attribute.bytes(1, name.as_bytes());
            attribute.number(3, *whole);
            attribute.number(20, OF_WHOLE);
            node.bytes(5, &attribute.into_bytes());
        }
        self.nodes.push(node.into_bytes());
    }

    /// Adds an entry of the file's metadata.
    pub(super) fn says(&mut self, key: String, value: String) {
        self.metadata.push((key, value));
    }

    /// Returns the bytes of the file.
    pub(super) fn into_file(self) -> Vec<u8> {
        let mut graph = Message::default();
        self.nodes.iter().for_each(|node| graph.bytes(1, node));
        graph.bytes(2, b"policy");
        self.tensors.iter().for_each(|tensor| graph.bytes(5, tensor));
        self.inputs.iter().for_each(|input| graph.bytes(11, &input.write()));
        self.outputs.iter().for_each(|output| graph.bytes(12, &output.write()));
        let (mut model, mut import) = (Message::default(), Message::default());
        model.number(1, FORMAT);
        model.bytes(2, b"rollhouse");
        model.bytes(7, &graph.into_bytes());
        import.number(2, OPSET);
        model.bytes(8, &import.into_bytes());
        for (key, value) in &self.metadata {
            let mut entry = Message::default();
            entry.bytes(1, key.as_bytes());
            entry.bytes(2, value.as_bytes());
            model.bytes(14, &entry.into_bytes());
        }
        model.into_bytes()
    }
}

/// The version of the format, the first in which weights are no inputs.
const FORMAT: i64 = 4;

/// The version of the operators: that of ML-Agents' own files, and the first that is read here.
const OPSET: i64 = 9;

/// What an attribute says to be a whole number.
const OF_WHOLE: i64 = 2;
