//! What knows a cluster's nodes, places sessions on them and gathers what they recorded.
#![forbid(unsafe_code)]
