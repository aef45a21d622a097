//! The tables of metrics, and the page on which their figures are put.

use prometheus::proto;

use crate::exemplar::{Exemplar, Exemplars};

/// Metric with its name, and a series for each combination of its labels' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Name of the metric: `rollhouse_<noun>_<unit>[_total]`, in base units.
    pub name: &'static str,
    /// Meaning of the metric, in one sentence.
    pub help: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Names of the labels. Their values are words of an enum, never ids or addresses.
    pub labels: &'static [&'static str],
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The value only rises, from the start of the process.
    Counter,
    /// The value rises and falls.
    Gauge,
    /// The metric has observations sorted into buckets.
    Histogram,
}

/// Observations sorted into buckets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Upper bounds of the buckets, rising, in the metric's unit. Observations above the last are in no bucket.
    pub bounds: Vec<f64>,
    /// Number of observations in each bucket, not added up. There is one more than there are bounds; the last counts
    /// observations above them.
    pub counts: Vec<u64>,
    /// Sum of all observations.
    pub sum: f64,
    /// Observation in each bucket about which more is known: as many as counts, or none. They are shown in OpenMetrics.
    pub exemplars: Vec<Option<Exemplar>>,
}

/// Figures of one moment.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<proto::MetricFamily>,
    exemplars: Exemplars,
}

impl Page {
    /// Puts a counter or gauge without labels on the page.
    pub fn value(&mut self, family: &Family, value: f64) {
        self.labelled(family, &[], value);
    }

    /// Puts one series of a counter or gauge on the page; `labels` are the values of the family's labels.
    ///
    /// # Panics
    /// In debug builds, if there are not as many values as labels.
    pub fn labelled(&mut self, family: &Family, labels: &[&str], value: f64) {
        let mut metric = proto::Metric::from_label(pairs(family, labels));
        match family.kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge | Kind::Histogram => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.push(family, metric);
    }

    /// Puts one series of a histogram on the page; `labels` are the values of the family's labels.
    ///
    /// # Panics
    /// In debug builds, if there are not as many values as labels.
    pub fn histogram(&mut self, family: &Family, labels: &[&str], histogram: &Histogram) {
        let mut added = 0;
        let buckets = histogram.bounds.iter().zip(&histogram.counts).map(|(&bound, &count)| {
            added += count;
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(added);
            bucket
        });
        let mut out = proto::Histogram::default();
        out.set_bucket(buckets.collect());
        out.set_sample_count(histogram.counts.iter().sum());
        out.set_sample_sum(histogram.sum);
        let mut metric = proto::Metric::from_label(pairs(family, labels));
        metric.set_histogram(out);
        self.push(family, metric);
        if histogram.exemplars.iter().any(Option::is_some) {
            let values = labels.iter().map(|value| (*value).to_owned()).collect();
            self.exemplars.insert((family.name.to_owned(), values), histogram.exemplars.clone());
        }
    }

    fn push(&mut self, family: &Family, metric: proto::Metric) {
        let index = match self.families.iter().position(|known| known.name() == family.name) {
            Some(index) => index,
            None => {
                let mut new = proto::MetricFamily::default();
                new.set_name(family.name.to_owned());
                new.set_help(family.help.to_owned());
                new.set_field_type(match family.kind {
                    Kind::Counter => proto::MetricType::COUNTER,
                    Kind::Gauge => proto::MetricType::GAUGE,
                    Kind::Histogram => proto::MetricType::HISTOGRAM,
                });
                self.families.push(new);
                self.families.len() - 1
            }
        };
        self.families[index].mut_metric().push(metric);
    }

    pub(crate) fn into_parts(self) -> (Vec<proto::MetricFamily>, Exemplars) {
        (self.families, self.exemplars)
    }
}

fn pairs(family: &Family, values: &[&str]) -> Vec<proto::LabelPair> {
    debug_assert_eq!(family.labels.len(), values.len(), "{}", family.name);
    let pair = |(name, value): (&&str, &&str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    family.labels.iter().zip(values).map(pair).collect()
}
