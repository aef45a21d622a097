//! Prints OpenMetrics, version 1.0, as text.

use std::fmt::Write;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use crate::exemplar::{Exemplar, Exemplars};

/// Content type of the text that [`print`] returns.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prints counters, gauges and histograms, each bucket with its exemplar if it has one.
pub(crate) fn print(families: &[MetricFamily], exemplars: &Exemplars) -> String {
    let mut out = String::new();
    for family in families {
        put_family(&mut out, family, exemplars);
    }
    out.push_str("# EOF\n");
    out
}

fn put_family(out: &mut String, family: &MetricFamily, exemplars: &Exemplars) {
    let name = family.name();
    let (base, kind) = match family.get_field_type() {
        MetricType::COUNTER => (name.strip_suffix("_total").unwrap_or(name), "counter"),
        MetricType::HISTOGRAM => (name, "histogram"),
        // Nothing else is registered.
        _ => (name, "gauge"),
    };
    put(out, format_args!("# TYPE {base} {kind}\n"));
    if let Some(unit) =
        UNITS.iter().find(|unit| base.strip_suffix(**unit).is_some_and(|of| of.ends_with('_')))
    {
        put(out, format_args!("# UNIT {base} {unit}\n"));
    }
    put(out, format_args!("# HELP {base} {}\n", escaped(family.help())));
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match family.get_field_type() {
            MetricType::COUNTER => {
                let value = metric.get_counter().get_value();
                put(out, format_args!("{base}_total{} {}\n", braces(labels, None), number(value)));
            }
            MetricType::HISTOGRAM => put_histogram(out, name, metric, exemplars),
            _ => {
                let value = metric.get_gauge().get_value();
                put(out, format_args!("{base}{} {}\n", braces(labels, None), number(value)));
            }
        }
    }
}

fn put_histogram(out: &mut String, name: &str, metric: &Metric, exemplars: &Exemplars) {
    let (labels, histogram) = (metric.get_label(), metric.get_histogram());
    let values = labels.iter().map(|pair| pair.value().to_owned()).collect();
    let exemplars = exemplars.get(&(name.to_owned(), values)).map_or(&[][..], Vec::as_slice);
    let count = histogram.get_sample_count();
    let bounds =
        histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    for (index, (bound, added)) in bounds.chain([(f64::INFINITY, count)]).enumerate() {
        put(out, format_args!("{name}_bucket{} {added}", braces(labels, Some(&canonical(bound)))));
        if let Some(Some(Exemplar { trace_id, value, at })) = exemplars.get(index) {
            let trace_id = escaped(trace_id);
            put(out, format_args!(" # {{trace_id=\"{trace_id}\"}} {} {at:.3}", number(*value)));
        }
        out.push('\n');
    }
    put(out, format_args!("{name}_count{} {count}\n", braces(labels, None)));
    let sum = number(histogram.get_sample_sum());
    put(out, format_args!("{name}_sum{} {sum}\n", braces(labels, None)));
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _written = out.write_fmt(what);
}

fn braces(labels: &[LabelPair], bound: Option<&str>) -> String {
    let pairs = labels.iter().map(|pair| (pair.name(), pair.value()));
    let pairs = pairs.chain(bound.map(|bound| ("le", bound)));
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        value if value == f64::INFINITY => "+Inf".to_owned(),
        value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// Prints a bound in the form that the standard wants, so that a scraper knows the buckets of all exporters by the same
/// words: always with a point, and from 0.0001 down with an exponent of two digits.
fn canonical(bound: f64) -> String {
    if bound != 0.0 && bound.abs() < 1e-4 {
        let (digits, exponent) = match format!("{bound:e}").split_once("e-") {
            Some((digits, exponent)) => (digits.to_owned(), exponent.to_owned()),
            None => return number(bound),
        };
        return format!("{digits}e-{exponent:0>2}");
    }
    let text = number(bound);
    let whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if whole { format!("{text}.0") } else { text }
}

/// Units in which names end, before `_total`.
const UNITS: [&str; 2] = ["seconds", "bytes"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::{Family, Histogram, Kind, Page};

    const TIMES: Family = Family {
        name: "bake_seconds",
        help: "Time \"in\" the oven.",
        kind: Kind::Histogram,
        labels: &["what"],
    };
    const LOAVES: Family =
        Family { name: "loaves_total", help: "Loaves.", kind: Kind::Counter, labels: &["grain"] };

    #[test]
    fn buckets_carry_their_exemplars_and_counters_lose_their_ending_in_their_type() {
        let mut page = Page::default();
        let exemplar = |value| Some(Exemplar { trace_id: "k3f9q2tz".to_owned(), value, at: 1_700_000_000.5 });
        let histogram = Histogram {
            bounds: vec![0.000_025, 0.5, 10.0],
            counts: vec![1, 2, 0, 1],
            sum: 13.5,
            exemplars: vec![None, exemplar(0.25), None, exemplar(12.0)],
        };
        page.histogram(&TIMES, &["rye"], &histogram);
        page.labelled(&LOAVES, &["r\"y\\e\n"], 3.0);
        let (families, exemplars) = page.into_parts();
        let wanted = r#"# TYPE bake_seconds histogram
# UNIT bake_seconds seconds
# HELP bake_seconds Time \"in\" the oven.
bake_seconds_bucket{what="rye",le="2.5e-05"} 1
bake_seconds_bucket{what="rye",le="0.5"} 3 # {trace_id="k3f9q2tz"} 0.25 1700000000.500
bake_seconds_bucket{what="rye",le="10.0"} 3
bake_seconds_bucket{what="rye",le="+Inf"} 4 # {trace_id="k3f9q2tz"} 12 1700000000.500
bake_seconds_count{what="rye"} 4
bake_seconds_sum{what="rye"} 13.5
# TYPE loaves counter
# HELP loaves Loaves.
loaves_total{grain="r\"y\\e\n"} 3
# EOF
"#;
        assert_eq!(print(&families, &exemplars), wanted);
    }
}
