//! Rewards and return over a whole episode, in as many buckets as fit a bound.

/// Rewards and return of the steps passed so far, in buckets of equally many steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    most: usize,
    width: u64,
    /// Steps in the last bucket.
    filled: u64,
    buckets: Vec<Bucket>,
}

/// A bucket of consecutive steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Smallest reward of these steps.
    pub least: f64,
    /// Largest reward of these steps.
    pub most: f64,
    /// Return after the last of these steps.
    pub total_reward: f64,
}

impl Timeline {
    /// Makes an empty timeline. It never has more than `most` buckets, where `most` is at least 2.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(2), width: 1, filled: 1, buckets: Vec::new() }
    }

    /// Adds the next step.
    pub(crate) fn add(&mut self, reward: f64, total_reward: f64) {
        if self.filled < self.width
            && let Some(last) = self.buckets.last_mut()
        {
            last.join(Bucket { least: reward, most: reward, total_reward });
            self.filled += 1;
            return;
        }
        if self.buckets.len() >= self.most {
            self.halve();
            return self.add(reward, total_reward);
        }
        self.buckets.push(Bucket { least: reward, most: reward, total_reward });
        self.filled = 1;
    }

    /// Joins every two buckets into one; all of them are full.
    fn halve(&mut self) {
        let is_odd = !self.buckets.len().is_multiple_of(2);
        let joined = self.buckets.chunks(2).map(|pair| {
            let mut joined = pair[0];
            pair[1..].iter().for_each(|next| joined.join(*next));
            joined
        });
        self.buckets = joined.collect();
        self.filled = if is_odd { self.width } else { self.width * 2 };
        self.width *= 2;
    }

    /// Returns the steps of a bucket; the last one may have fewer.
    pub const fn width(&self) -> u64 {
        self.width
    }

    /// Returns the buckets: the first begins with step 1.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }
}

impl Bucket {
    /// Joins the bucket that follows into this one.
    pub fn join(&mut self, next: Self) {
        self.least = self.least.min(next.least);
        self.most = self.most.max(next.most);
        self.total_reward = next.total_reward;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_stay_within_the_bound_and_hold_every_step_once() {
        for most in [2, 3, 8] {
            let mut timeline = Timeline::new(most);
            for t in 1..=1000_u64 {
                timeline.add(-(t as f64), t as f64 * 10.0);
                let (width, count) = (timeline.width(), timeline.buckets().len());
                assert!(count <= most && width * (count as u64 - 1) < t && t <= width * count as u64);
                for (index, bucket) in timeline.buckets().iter().enumerate() {
                    let first = index as u64 * width + 1;
                    let last = (first + width - 1).min(t);
                    let wanted = Bucket {
                        least: -(last as f64),
                        most: -(first as f64),
                        total_reward: last as f64 * 10.0,
                    };
                    assert_eq!(*bucket, wanted, "bucket {index} of {t} steps");
                }
            }
        }
    }
}
