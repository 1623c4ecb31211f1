// Properties of every byte string. The fuzz target includes this file, and so does
// `tests/corpus.rs`, which replays the corpus without a fuzzer.

use squall_wire::*;

/// Panics when `bytes` shows a fault of the codec.
pub(crate) fn check(bytes: &[u8]) {
    let parsed = parse(bytes);
    if let Ok(packet) = parsed {
        // An accepted packet has one encoding, the bytes that arrived.
        assert_eq!(packet.len(), bytes.len(), "{packet:?}");
        let mut out = vec![0xEE; bytes.len() + 1];
        assert_eq!(packet.emit(&mut out), bytes.len(), "{packet:?}");
        assert_eq!(&out[..bytes.len()], bytes, "{packet:?}");
        assert_eq!(out[bytes.len()], 0xEE, "emit wrote past its length: {packet:?}");
    }
    // Trimming leaves the delivery header unchanged.
    if let (Ok(Packet::Request { pds, .. }), trimmed) = (parsed, parse_trimmed(bytes)) {
        assert_eq!(trimmed.map(|trimmed| trimmed.pds), Ok(pds));
    }
    for cut in [0, 1, 12, 16, 36, 56, bytes.len() / 2] {
        // The results do not matter, only that the calls return.
        let part = &bytes[..cut.min(bytes.len())];
        let _ = (parse(part), parse_trimmed(part), check_and_strip_crc(part));
    }
    check_views(bytes);
    let sealed = [bytes, &crc::trailer(&[bytes])].concat();
    assert_eq!(check_and_strip_crc(&sealed), Some(bytes));
}

/// A view agrees with the value that is read through it.
fn check_views(bytes: &[u8]) {
    if let (Ok(view), Ok(value)) = (RequestView::new(bytes), Request::read(bytes)) {
        assert_eq!((view.psn(), view.spdcid()), (value.psn.0, value.spdcid));
        assert_eq!(view.next(), value.next.to_u8());
    }
    if let (Ok(view), Ok(value)) = (AckView::new(bytes), Ack::read(bytes)) {
        assert_eq!((view.cack_psn(), view.dpdcid()), (value.cack_psn.0, value.dpdcid));
    }
    if let (Ok(view), Ok(value)) = (NackView::new(bytes), Nack::read(bytes)) {
        assert_eq!((view.psn(), view.code()), (value.psn.0, value.code.to_u8()));
    }
    if let (Ok(view), Ok(value)) = (ControlView::new(bytes), Control::read(bytes)) {
        assert_eq!((view.psn(), view.payload()), (value.psn.0, value.payload));
    }
    // Semantic headers have no type field of their own, so any bytes of the right length will do.
    let rest = bytes.get(Request::LEN..).unwrap_or_default();
    if let (Ok(view), Ok(value)) = (StdView::new(rest), StdRequest::read(rest)) {
        assert_eq!((view.message_id(), view.job_id()), (value.message_id, value.job_id));
        assert_eq!(view.request_length(), value.request_length);
    }
    if let (Ok(view), Ok(value)) = (ResponseView::new(rest), Response::read(rest)) {
        assert_eq!(view.modified_length(), value.modified_length);
    }
    if let (Ok(view), Ok(value)) = (ResponseDataView::new(rest), ResponseData::read(rest)) {
        assert_eq!(view.message_offset(), value.message_offset);
    }
}
