//! Choosing the actions of all lanes of a request from what a net says of each.

use rollhouse_core::{ColumnData, ColumnRef, DType, Space, StepColumn, StepColumns};

use crate::sampling::{Head, Words, write_actions};
use crate::{Act, ActError, Sampling};

/// Chooses actions from the outputs of a net, and notes what there is to note of them.
pub(crate) struct Chooser {
    key: u64,
    space: Space,
    head: Head,
    sampling: Sampling,
    /// What is noted of the last actions, in the order of the model's columns.
    notes: Vec<ColumnData>,
    actions: Vec<f64>,
    drawn: Vec<f32>,
    log_probs: Vec<f32>,
    values: Vec<f32>,
    /// What stands for the outputs where a net says no action.
    nothing: Vec<f32>,
    /// Lanes of the last request of which the net says no action.
    failed: Vec<u32>,
}

/// What a net says of the lanes of a request: a row of each.
#[derive(Clone, Copy)]
pub(crate) struct Looked<'a> {
    /// As many numbers of a lane as its head has outputs.
    pub(crate) outputs: &'a [f32],
    /// The value of what a lane shows; none if the net has no value.
    pub(crate) values: &'a [f32],
    /// The net's own logarithms of probabilities of actions that are taken as they are; none if it has none.
    pub(crate) log_probs: &'a [f32],
    /// Rows of which it says nothing.
    pub(crate) failed: &'a [usize],
}

impl Chooser {
    /// Returns what is noted of actions by a head; by none if it does not fit.
    pub(crate) fn columns(head: Option<&Head>, has_value: bool) -> StepColumns {
        let number = |name: &str| StepColumn { name: name.to_owned(), dtype: DType::F32, shape: Vec::new() };
        let mut columns = vec![number(LOG_PROB)];
        if has_value {
            columns.push(number(VALUE));
        }
        if let Some(head) = head.filter(|head| head.cuts()) {
            columns.push(StepColumn { shape: vec![head.elements()], ..number(DRAWN) });
        }
        // Three short columns with different names.
        StepColumns::new(columns).unwrap_or_default()
    }

    /// Makes a chooser of actions of a space. `notes` are the columns of [`Chooser::columns`], without rows.
    pub(crate) fn new(
        space: &Space,
        head: Head,
        sampling: Sampling,
        notes: Vec<ColumnData>,
        run_seed: u64,
    ) -> Self {
        Self {
            key: Words::key(run_seed),
            space: space.clone(),
            nothing: vec![0.0; head.outputs()],
            head,
            sampling,
            notes,
            actions: Vec::new(),
            drawn: Vec::new(),
            log_probs: Vec::new(),
            values: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Returns the number of lanes of a request.
    ///
    /// # Errors
    /// Its actions or masks are not those of the space.
    pub(crate) fn rows(&self, request: &Act<'_>) -> Result<usize, ActError> {
        let elements = self.head.elements();
        let given = request.actions.as_ref().len();
        let count = given / elements;
        if count * elements != given {
            return Err(ActError::Rows { elements, given });
        }
        let wanted = count * self.booleans();
        match request.mask {
            Some(mask) if mask.len() != wanted => Err(ActError::Mask { wanted, given: mask.len() }),
            _ => Ok(count),
        }
    }

    /// Writes the actions of a request, which [`Chooser::rows`] has checked. Lanes of which the net says no action have failed, and
    /// have some action of the space.
    ///
    /// # Errors
    /// The column of actions is of another type than the space.
    pub(crate) fn choose(&mut self, request: Act<'_>, looked: Looked<'_>) -> Result<(), ActError> {
        let Act { first_lane, step, mask, actions, .. } = request;
        let Looked { outputs, values, log_probs, failed } = looked;
        let (elements, booleans) = (self.head.elements(), self.booleans());
        let count = actions.as_ref().len() / elements;
        self.actions.resize(count * elements, 0.0);
        self.drawn.resize(count * elements, 0.0);
        self.log_probs.resize(count, 0.0);
        self.values.clear();
        self.values.extend_from_slice(values);
        self.failed.clear();
        for (row, of_row) in outputs.chunks_exact(self.head.outputs()).enumerate() {
            let lane = first_lane + row as u32;
            let is_finite = of_row.iter().chain(values.get(row)).all(|number| number.is_finite());
            let has_failed = failed.contains(&row) || !is_finite || !self.head.has_action(of_row);
            if has_failed {
                self.failed.push(lane);
                self.values.get_mut(row).into_iter().for_each(|value| *value = 0.0);
            }
            let mask = mask.map(|mask| &mask[row * booleans..(row + 1) * booleans]);
            let words = Words::of(self.key, lane, step);
            let places = row * elements..(row + 1) * elements;
            let chosen = (&mut self.actions[places.clone()], &mut self.drawn[places]);
            let of_row = if has_failed { &*self.nothing } else { of_row };
            let log_prob = self.head.choose(of_row, mask, self.sampling, words, chosen) as f32;
            let own = log_probs.get(row).copied().filter(|own| own.is_finite());
            self.log_probs[row] = own.unwrap_or(log_prob);
        }
        write_actions(&self.space, &self.actions, actions)?;
        self.note();
        Ok(())
    }

    /// Returns the lanes of the last request of which the net says no action, ascending.
    pub(crate) fn failed(&self) -> &[u32] {
        &self.failed
    }

    /// Returns what is noted of the last actions.
    pub(crate) fn notes(&self) -> &[ColumnData] {
        &self.notes
    }

    /// Returns the number of booleans of a lane's action mask.
    fn booleans(&self) -> usize {
        self.space.choices().unwrap_or(0) as usize
    }

    fn note(&mut self) {
        let values = (!self.values.is_empty()).then_some(&*self.values);
        let noted = [&*self.log_probs].into_iter().chain(values).chain([&*self.drawn]);
        for (column, numbers) in self.notes.iter_mut().zip(noted) {
            column.clear();
            let fits = column.extend(ColumnRef::F32(numbers));
            debug_assert!(fits, "what is noted are singles");
        }
    }
}

/// Step column of the logarithm of the probability, or density, of the action that was drawn.
const LOG_PROB: &str = "log_prob";

/// Step column of the value that the net gives what it saw.
const VALUE: &str = "value";

/// Step column of the action that was drawn, where the one that is taken is cut to the bounds.
const DRAWN: &str = "drawn_action";
