//! The libfabric provider `squall`.
