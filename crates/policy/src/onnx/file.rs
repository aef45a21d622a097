//! A file of ONNX, read and checked before a runtime sees any of it.
//!
//! The runtime gets a file that is written anew of what was checked: nodes, weights, inputs and outputs. Descriptions, shapes of
//! values in between, functions and training data of the file that was given are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::OnnxError;
use super::errors::shown;
use super::operators::runs;
use super::tensor::{self, ElementType, Singles, Tensor};
use super::wire::{Field, Fields, Message, NoMessage};

/// What is known of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct OnnxFile {
    /// The version of the format.
    ir: i64,
    /// The messages that say which versions of operators are meant.
    imports: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    /// The weights.
    initializers: Vec<Tensor>,
    /// What it takes, in its order.
    pub(super) inputs: Vec<Port>,
    /// What it gives, in its order.
    pub(super) outputs: Vec<Port>,
    /// What the file says beside the net.
    pub(super) metadata: BTreeMap<String, String>,
}

/// An input or an output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) of: ElementType,
    /// Extent of each axis, `None` for one that is not said; no list for an output whose number of axes is not said.
    pub(super) shape: Option<Vec<Option<usize>>>,
}

/// What becomes of shapes that a file's nodes bring something to, where its exporter has written the one row that it saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowShapes {
    AsTheyAre,
    /// The last of the leading axes of one has any extent, as rows behind the steps of a sequence.
    LastFreed,
    /// The first axis has.
    FirstFreed,
}

/// An operator's use.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) operator: String,
    pub(super) inputs: Vec<String>,
    outputs: Vec<String>,
    bytes: Vec<u8>,
}

impl OnnxFile {
    /// Reads a file. What it has no use for is checked for its form alone.
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub(super) fn read(bytes: &[u8]) -> Result<Self, OnnxError> {
        if bytes.len() as u64 > crate::MAX_NET_BYTES {
            return Err(OnnxError::TooLong { bytes: bytes.len() as u64 });
        }
        let mut file = Self::default();
        let mut graph = None;
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => file.ir = field.number()?,
                7 => graph = Some(field.bytes()?),
                8 => file.import(field.bytes()?)?,
                14 => {
                    let (key, value) = entry(field.bytes()?)?;
                    file.metadata.insert(key, value);
                    at_most("entries of metadata", file.metadata.len(), MOST_METADATA)?;
                }
                _ => {}
            }
        }
        file.graph(graph.ok_or(OnnxError::Format)?)?;
        if file.imports.is_empty() || file.inputs.is_empty() || file.outputs.is_empty() {
            return Err(OnnxError::Format);
        }
        file.check_operators(&file.wanted_outputs())?;
        Ok(file)
    }

    /// Takes the version of a set of operators.
    fn import(&mut self, message: &[u8]) -> Result<(), OnnxError> {
        let (mut domain, mut version) = ("", 0);
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => domain = field.text()?,
                2 => version = field.number()?,
                _ => {}
            }
        }
        if is_standard(domain) {
            if !(OPSETS.0..=OPSETS.1).contains(&version) {
                return Err(OnnxError::Opset { given: version, least: OPSETS.0, most: OPSETS.1 });
            }
            self.imports.push(message.to_vec());
            at_most("sets of operators", self.imports.len(), 1)?;
        }
        Ok(())
    }

    fn graph(&mut self, message: &[u8]) -> Result<(), OnnxError> {
        let mut weights = BTreeSet::new();
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => {
                    self.nodes.push(Node::read(field.bytes()?)?);
                    at_most("nodes", self.nodes.len(), MOST_NODES)?;
                }
                5 => {
                    let tensor = tensor::check(field.bytes()?)?;
                    weights.insert(tensor.name.clone());
                    self.initializers.push(tensor);
                    at_most("tensors", self.initializers.len(), MOST_NODES)?;
                }
                11 => self.inputs.push(Port::read(field.bytes()?)?),
                12 => self.outputs.push(Port::read(field.bytes()?)?),
                15 => return Err(OnnxError::Sparse),
                _ => {}
            }
        }
        // Older files list their weights among the inputs.
        self.inputs.retain(|input| !weights.contains(&input.name));
        at_most("inputs", self.inputs.len(), MOST_PORTS)?;
        at_most("outputs", self.outputs.len(), MOST_PORTS)?;
        match self.inputs.iter().find(|input| input.shape.is_none()) {
            Some(input) => Err(OnnxError::Rank { name: input.name.clone() }),
            None => Ok(()),
        }
    }

    /// Returns the names of the outputs that may be of use: of what is drawn by the file itself, and beside it as what is
    /// likeliest, the latter alone.
    pub(super) fn wanted_outputs(&self) -> Vec<&str> {
        let names = || self.outputs.iter().map(|output| &*output.name);
        let has_twin = |name: &str| names().any(|other| other.strip_prefix(DETERMINISTIC) == Some(name));
        names().filter(|name| !has_twin(name)).collect()
    }

    /// Returns whether an output is one of the inputs as it is.
    pub(super) fn passes(&self, output: &str, input: &str) -> bool {
        let mut name = output;
        for _ in 0..self.nodes.len() {
            match self.node_of(name) {
                Some(Node { operator, inputs, .. }) if operator == "Identity" && inputs.len() == 1 => {
                    name = &inputs[0];
                }
                _ => break,
            }
        }
        name == input
    }

    /// Returns the node whose first output has that name.
    pub(super) fn node_of(&self, output: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.outputs.first().is_some_and(|of| of == output))
    }

    /// Returns the tensor of that name, if it has singles.
    pub(super) fn singles(&self, name: &str) -> Option<Singles> {
        self.initializers.iter().find(|tensor| tensor.name == name)?.singles()
    }

    /// Returns which nodes lead to these outputs.
    fn leading_to(&self, outputs: &[&str]) -> Vec<bool> {
        let mut of: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            of.extend(node.outputs.iter().filter(|name| !name.is_empty()).map(|name| (&**name, at)));
        }
        let mut leads = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = outputs.iter().filter_map(|name| of.get(name).copied()).collect();
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut leads[at], true) {
                open.extend(self.nodes[at].inputs.iter().filter_map(|name| of.get(&**name).copied()));
            }
        }
        leads
    }

    fn check_operators(&self, outputs: &[&str]) -> Result<(), OnnxError> {
        let leads = self.leading_to(outputs);
        let mut nodes = self.nodes.iter().zip(leads).filter(|(_, leads)| *leads);
        match nodes.find(|(node, _)| !runs(&node.operator)) {
            Some((node, _)) => Err(OnnxError::Operator {
                operator: shown(&node.operator),
                output: node.outputs.first().map_or_else(String::new, |name| shown(name)),
            }),
            None => Ok(()),
        }
    }

    /// Returns whether a tensor is the shape to which some node brings something.
    fn is_shape(&self, tensor: &Tensor) -> bool {
        let of = |node: &Node| node.operator == "Reshape" && node.inputs.get(1) == Some(&tensor.name);
        self.nodes.iter().any(of)
    }

    /// Returns whether a node brings something to a shape that begins with an axis of one.
    pub(super) fn has_row_shapes(&self) -> bool {
        self.initializers.iter().any(|tensor| self.is_shape(tensor) && tensor.freed(false).is_some())
    }

    /// Writes a file of what leads to some of the outputs, with inputs of these shapes. Outputs have none.
    pub(super) fn write(&self, inputs: &[Port], outputs: &[&str], rows: RowShapes) -> Vec<u8> {
        let mut graph = Message::default();
        for (node, _) in self.nodes.iter().zip(self.leading_to(outputs)).filter(|(_, leads)| *leads) {
            graph.bytes(1, &node.bytes);
        }
        graph.bytes(2, b"policy");
        for tensor in &self.initializers {
            let freed = match rows {
                RowShapes::AsTheyAre => None,
                _ if !self.is_shape(tensor) => None,
                rows => tensor.freed(rows == RowShapes::LastFreed),
            };
            graph.bytes(5, freed.as_deref().unwrap_or_else(|| tensor.bytes()));
        }
        inputs.iter().for_each(|input| graph.bytes(11, &input.write()));
        for output in self.outputs.iter().filter(|output| outputs.contains(&&*output.name)) {
            graph.bytes(12, &Port { shape: None, ..output.clone() }.write());
        }
        let mut model = Message::default();
        model.number(1, self.ir);
        self.imports.iter().for_each(|import| model.bytes(8, import));
        model.bytes(7, &graph.into_bytes());
        model.into_bytes()
    }
}

impl Node {
    fn read(message: &[u8]) -> Result<Self, OnnxError> {
        let mut node = Self { bytes: message.to_vec(), ..Self::default() };
        let mut domain = "";
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => node.inputs.push(field.text()?.to_owned()),
                2 => node.outputs.push(field.text()?.to_owned()),
                4 if node.operator.is_empty() => field.text()?.clone_into(&mut node.operator),
                7 if domain.is_empty() => domain = field.text()?,
                // What is said twice may be read otherwise by somebody else.
                4 | 7 => return Err(OnnxError::Format),
                5 => check_attribute(field.bytes()?)?,
                _ => {}
            }
        }
        if !is_standard(domain) {
            node.operator = format!("{domain}.{}", node.operator);
        }
        at_most("inputs of a node", node.inputs.len(), MOST_PORTS)?;
        at_most("outputs of a node", node.outputs.len(), MOST_PORTS)?;
        Ok(node)
    }

    /// Returns the attribute of that name: what stands in one of its fields.
    fn attribute(&self, name: &str, place: u64) -> Option<Field<'_>> {
        let mut fields = Fields::new(&self.bytes);
        while let Some((number, field)) = fields.next().ok()? {
            if number != 5 {
                continue;
            }
            let (mut of, mut found) = ("", None);
            let mut parts = Fields::new(field.bytes().ok()?);
            while let Some((number, part)) = parts.next().ok()? {
                match number {
                    1 => of = part.text().ok()?,
                    number if number == place => found = Some(part),
                    _ => {}
                }
            }
            if of == name {
                return found;
            }
        }
        None
    }

    /// Returns a whole number that the node says.
    pub(super) fn whole(&self, name: &str, default: i64) -> i64 {
        self.attribute(name, 3).and_then(|field| field.number().ok()).unwrap_or(default)
    }

    /// Returns a quantity that the node says.
    pub(super) fn single(&self, name: &str, default: f32) -> f32 {
        match self.attribute(name, 2) {
            Some(Field::Fixed32(bytes)) => f32::from_le_bytes(bytes),
            _ => default,
        }
    }

    /// Returns whether a product is of its first input as it is, and neither it nor what is added is multiplied by a number.
    pub(super) fn is_plain_product(&self) -> bool {
        self.whole("transA", 0) == 0 && self.single("alpha", 1.0) == 1.0 && self.single("beta", 1.0) == 1.0
    }
}

/// Checks what a node says beside its inputs: graphs of its own and sparse tensors are refused.
fn check_attribute(message: &[u8]) -> Result<(), OnnxError> {
    let mut fields = Fields::new(message);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (2, Field::Fixed32(bytes)) if f32::from_le_bytes(bytes).is_nan() => {
                return Err(OnnxError::NotFinite {
                    name: "an attribute".to_owned(),
                    index: 0,
                    given: f64::NAN,
                });
            }
            (5 | 10, field) => {
                tensor::check(field.bytes()?)?;
            }
            (6 | 11, _) => return Err(OnnxError::Subgraph),
            (22 | 23, _) => return Err(OnnxError::Sparse),
            _ => {}
        }
    }
    Ok(())
}

impl Port {
    /// Returns the shape as messages show it.
    pub(super) fn shown_shape(&self) -> String {
        let axes = self.shape.iter().flatten();
        let axes = axes.map(|extent| extent.map_or_else(|| "?".to_owned(), |extent| extent.to_string()));
        format!("[{}]", axes.collect::<Vec<_>>().join(", "))
    }

    fn read(message: &[u8]) -> Result<Self, OnnxError> {
        let (mut name, mut kind) = ("", None);
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => name = field.text()?,
                2 => kind = Some(field.bytes()?),
                _ => {}
            }
        }
        let mut port = Self { name: name.to_owned(), of: ElementType::F32, shape: None };
        let mut fields = Fields::new(kind.ok_or_else(|| OnnxError::Rank { name: shown(name) })?);
        let mut is_tensor = false;
        while let Some((number, field)) = fields.next()? {
            if number != 1 {
                return Err(OnnxError::NoTensor { name: shown(name) });
            }
            is_tensor = true;
            port.read_tensor(field.bytes()?)?;
        }
        if is_tensor { Ok(port) } else { Err(OnnxError::NoTensor { name: shown(name) }) }
    }

    fn read_tensor(&mut self, message: &[u8]) -> Result<(), OnnxError> {
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => {
                    let given = field.number()?;
                    let wrong = || OnnxError::Type { name: shown(&self.name), given };
                    self.of = ElementType::of_number(given).ok_or_else(wrong)?;
                }
                2 => {
                    let (mut shape, mut axes) = (Vec::new(), Fields::new(field.bytes()?));
                    while let Some((number, field)) = axes.next()? {
                        if number == 1 {
                            shape.push(extent(field.bytes()?)?);
                            at_most("axes", shape.len(), MOST_AXES)?;
                        }
                    }
                    self.shape = Some(shape);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the message of the port. The first axis is called `rows` where its extent is not said.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut tensor = Message::default();
        tensor.number(1, self.of.number());
        if let Some(shape) = &self.shape {
            let mut axes = Message::default();
            for (at, extent) in shape.iter().enumerate() {
                let mut axis = Message::default();
                match extent {
                    Some(extent) => axis.number(1, *extent as i64),
                    // The rows of all inputs are as many.
                    None if at == 0 => axis.bytes(2, b"rows"),
                    None => axis.bytes(2, format!("rows_{at}").as_bytes()),
                }
                axes.bytes(1, &axis.into_bytes());
            }
            tensor.bytes(2, &axes.into_bytes());
        }
        let (mut kind, mut port) = (Message::default(), Message::default());
        kind.bytes(1, &tensor.into_bytes());
        port.bytes(1, self.name.as_bytes());
        port.bytes(2, &kind.into_bytes());
        port.into_bytes()
    }
}

/// Reads the extent of an axis; `None` if it is a name, or is not said.
fn extent(message: &[u8]) -> Result<Option<usize>, OnnxError> {
    let mut extent = None;
    let mut fields = Fields::new(message);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            let given = field.number()?;
            // Some writers have -1 or 0 for what is not said.
            extent = usize::try_from(given).ok().filter(|extent| *extent > 0);
            at_most("numbers along an axis", extent.unwrap_or(0), MOST_EXTENT)?;
        }
    }
    Ok(extent)
}

fn entry(message: &[u8]) -> Result<(String, String), NoMessage> {
    let (mut key, mut value) = ("", "");
    let mut fields = Fields::new(message);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

fn at_most(what: &'static str, given: usize, limit: usize) -> Result<(), OnnxError> {
    if given > limit { Err(OnnxError::TooMany { what, given, limit }) } else { Ok(()) }
}

/// What stands before the name of an output that has what is likeliest, beside one that is drawn.
pub(super) const DETERMINISTIC: &str = "deterministic_";

/// Versions of the standard operators that are taken.
const OPSETS: (i64, i64) = (9, 21);

/// The most inputs, and outputs.
const MOST_PORTS: usize = 64;

/// The most nodes, and tensors.
const MOST_NODES: usize = 4096;

/// The most entries of metadata.
const MOST_METADATA: usize = 256;

/// The most axes of an input or output.
const MOST_AXES: usize = 8;

/// The most numbers along an axis of an input.
const MOST_EXTENT: usize = 1 << 24;
