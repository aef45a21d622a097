//! Where the rows of lanes lie in an input or output.

use super::file::Port;

/// The shape of what an input has of a lane, and the axis along which lanes are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layout {
    /// Shape of a lane's row.
    row: Vec<usize>,
    /// Place of the axis of lanes among the row's; `None` if the file has no such axis.
    axis: Option<usize>,
}

impl Layout {
    /// Returns the layout of an input whose rows have `wanted` numbers of that shape, but for axes of one; `None` if it has others.
    pub(super) fn of(port: &Port, wanted: &[usize]) -> Option<Self> {
        let shape = port.shape.as_deref()?;
        let many = |shape: &[usize]| shape.iter().copied().filter(|extent| *extent != 1).collect::<Vec<_>>();
        let wanted_many = many(wanted);
        // The row's axes from the back: what is not said is as wanted, or one.
        let row_of = |axes: &[Option<usize>]| {
            let (mut row, mut left) = (Vec::new(), wanted.iter().rev());
            for extent in axes.iter().rev() {
                let next = left.clone().next();
                let extent = extent.or(next.copied()).unwrap_or(1);
                if next == Some(&extent) {
                    left.next();
                }
                row.push(extent);
            }
            row.reverse();
            (many(&row) == wanted_many).then_some(row)
        };
        let is_leading = |extent: &Option<usize>| matches!(extent, None | Some(1));
        let (first, rest) = shape.split_first().map_or((None, shape), |(first, rest)| (Some(first), rest));
        let fits_alone =
            || row_of(shape).filter(|row| row.len() <= wanted.len().max(1) && row.len() == shape.len());
        if let Some(first) = first
            && is_leading(first)
            && (shape.len() > wanted.len() || fits_alone().is_none())
            && let Some(row) = row_of(rest)
        {
            return Some(Self { row, axis: Some(0) });
        }
        fits_alone().map(|row| Self { row, axis: None })
    }

    /// Returns the layout of an input of state: the axis of lanes is the one whose extent is not said, else the second of three,
    /// as recurrent layers of PyTorch have it, else the first of several, if it is one.
    pub(super) fn of_state(port: &Port) -> Option<Self> {
        let shape = port.shape.as_deref()?;
        let free: Vec<usize> = (0..shape.len()).filter(|&at| shape[at].is_none()).collect();
        let axis = match (&free[..], shape) {
            ([axis], _) => Some(*axis),
            ([], [_, Some(1), _]) => Some(1),
            ([], [Some(1), _, ..]) => Some(0),
            ([], _) => None,
            _ => return None,
        };
        let row = shape.iter().enumerate().filter(|(at, _)| Some(*at) != axis);
        Some(Self { row: row.map(|(_, extent)| extent.unwrap_or(1)).collect(), axis })
    }

    /// Returns whether the file has an axis of lanes.
    pub(super) const fn has_axis(&self) -> bool {
        self.axis.is_some()
    }

    /// Returns the shape of a lane's row.
    pub(super) fn row(&self) -> &[usize] {
        &self.row
    }

    /// Returns the number of numbers of a lane.
    pub(super) fn elements(&self) -> usize {
        self.row.iter().product()
    }

    /// Returns the shape for so many lanes; for `None`, of one lane as the file has it.
    pub(super) fn shape(&self, lanes: Option<usize>) -> Vec<usize> {
        let mut shape = self.row.clone();
        if self.axis.is_some() || lanes.is_some() {
            shape.insert(self.axis.unwrap_or(0), lanes.unwrap_or(1));
        }
        shape
    }

    /// Returns the shape as a file declares it, with any number of lanes. `whole` adds an axis of lanes where the file has none.
    pub(super) fn declared(&self, whole: bool) -> Vec<Option<usize>> {
        let mut shape: Vec<Option<usize>> = self.row.iter().copied().map(Some).collect();
        if self.axis.is_some() || whole {
            shape.insert(self.axis.unwrap_or(0), None);
        }
        shape
    }

    /// Moves rows, one behind the other, to where they lie among so many lanes. Returns false where they lie there already.
    pub(super) fn spread(&self, rows: &[f32], lanes: usize, out: &mut Vec<f32>) -> bool {
        let axis = self.axis.unwrap_or(0);
        let outer: usize = self.row[..axis].iter().product();
        if outer == 1 || lanes == 1 {
            return false;
        }
        let inner = self.elements() / outer.max(1);
        out.clear();
        for at in 0..outer {
            for lane in 0..lanes {
                let first = (lane * outer + at) * inner;
                out.extend_from_slice(&rows[first..first + inner]);
            }
        }
        true
    }

    /// Moves numbers from where they lie among lanes to rows, one behind the other.
    pub(super) fn gather(&self, numbers: &[f32], lanes: usize, rows: &mut [f32]) {
        let axis = self.axis.unwrap_or(0);
        let outer: usize = self.row[..axis].iter().product();
        let inner = self.elements() / outer.max(1);
        for (place, from) in numbers.chunks_exact(inner.max(1)).enumerate() {
            let (at, lane) = (place / lanes.max(1), place % lanes.max(1));
            let first = (lane * outer + at) * inner;
            if let Some(to) = rows.get_mut(first..first + inner) {
                to.copy_from_slice(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensor::ElementType;
    use super::*;

    fn port(shape: &[Option<usize>]) -> Port {
        Port { name: String::new(), of: ElementType::F32, shape: Some(shape.to_vec()) }
    }

    #[test]
    fn an_axis_of_lanes_is_the_first_one_that_is_one_or_not_said() {
        let of = |shape: &[Option<usize>], wanted: &[usize]| Layout::of(&port(shape), wanted);
        let has = |row: &[usize], axis| Some(Layout { row: row.to_vec(), axis });
        assert_eq!(of(&[None, Some(4)], &[4]), has(&[4], Some(0)));
        assert_eq!(of(&[Some(1), Some(4)], &[4]), has(&[4], Some(0)));
        assert_eq!(of(&[Some(4)], &[4]), has(&[4], None));
        assert_eq!(of(&[Some(1), None], &[4]), has(&[4], Some(0)));
        assert_eq!(of(&[None, Some(1), Some(4)], &[4]), has(&[1, 4], Some(0)));
        assert_eq!(of(&[None], &[]), has(&[], Some(0)));
        assert_eq!(of(&[Some(1)], &[1]), has(&[1], None));
        assert_eq!(of(&[None, Some(1)], &[1]), has(&[1], Some(0)));
        assert_eq!(of(&[Some(2), Some(4)], &[4]), None);
        assert_eq!(of(&[None, Some(5)], &[4]), None);
        assert_eq!(of(&[Some(1), Some(3), Some(8), Some(9)], &[8, 9, 3]), None);
        assert_eq!(of(&[Some(1), Some(3), Some(8), Some(9)], &[3, 8, 9]), has(&[3, 8, 9], Some(0)));
        assert_eq!(of(&[Some(3), Some(8), Some(9)], &[3, 8, 9]), has(&[3, 8, 9], None));
        assert_eq!(of(&[None, Some(1), Some(8), Some(9)], &[8, 9]), has(&[1, 8, 9], Some(0)));
    }

    #[test]
    fn states_of_lanes_lie_along_their_axis_and_come_back_as_rows() {
        let layout = Layout::of_state(&port(&[Some(2), Some(1), Some(3)])).unwrap();
        assert_eq!(
            (layout.elements(), layout.shape(Some(5)), layout.shape(None)),
            (6, vec![2, 5, 3], vec![2, 1, 3])
        );
        let rows: Vec<f32> = (0..12).map(|number| number as f32).collect();
        let mut spread = Vec::new();
        assert!(layout.spread(&rows, 2, &mut spread));
        assert_eq!(spread, [0.0, 1.0, 2.0, 6.0, 7.0, 8.0, 3.0, 4.0, 5.0, 9.0, 10.0, 11.0]);
        let mut back = vec![0.0; 12];
        layout.gather(&spread, 2, &mut back);
        assert_eq!(back, rows);
        let passed = Layout::of_state(&port(&[None])).unwrap();
        assert_eq!((passed.elements(), passed.shape(Some(4))), (1, vec![4]));
        assert_eq!(Layout::of_state(&port(&[Some(128)])).map(|of| of.shape(None)), Some(vec![128]));
    }
}
