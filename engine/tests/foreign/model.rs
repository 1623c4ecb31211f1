//! Models of how SUET and the reference provider acknowledge, answer and repeat packets. They check
//! what these demand of a peer.

use std::collections::{BTreeMap, VecDeque};

use squall_base::{Psn, Rng, Span, Time};
use squall_wire::{
    Ack, AckExt, AckRequest, Control, ControlKind, Dest, Extension, List, Mode, Nack, NackCode,
    NextHeader, Opcode, Packet, Request, Response, ResponseOpcode, ReturnCode, Ses, StdBody,
    StdRequest, parse,
};

/// The peer that a model plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Goes back to the oldest packet of a gap, in both directions, and keeps messages that no receive
    /// matches.
    Suet,
    /// Sends one message at a time, and discards messages that no receive matches.
    Reference,
}

/// A message, as the model sends or receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) tag: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A packet that the model sends.
struct Segment {
    message: usize,
    offset: usize,
    len: usize,
    first: bool,
    last: bool,
    sent_at: Option<Time>,
    tries: u8,
}

/// A message that arrives.
struct Incoming {
    id: u16,
    message: Message,
    received: usize,
}

/// A message that no receive had matched when it arrived.
struct Unmatched {
    psn: u32,
    response: Response,
    at: Time,
}

/// A peer of another implementation: the initiator of one context and the target of another.
pub(crate) struct Model {
    kind: Kind,
    payload: usize,
    rng: Rng,
    pub(crate) out: VecDeque<Vec<u8>>,
    // The initiating half.
    messages: Vec<Message>,
    segments: Vec<Segment>,
    start: u32,
    /// Segments that are acknowledged.
    acknowledged: usize,
    /// Messages whose response has arrived, for the reference.
    pub(crate) answered: usize,
    remote: u16,
    rto: Span,
    // The target half.
    peer_context: u16,
    expected: u32,
    early: BTreeMap<u32, (StdRequest, Vec<u8>)>,
    active: Option<Incoming>,
    pub(crate) received: Vec<Message>,
    unmatched: Vec<Unmatched>,
    /// The stored responses, by PSN.
    kept: BTreeMap<u32, Response>,
    /// The response to each packet, to repeat it.
    answers: BTreeMap<u32, Response>,
    pub(crate) refusals: u32,
}

const OWN_CONTEXT: u16 = 3;
const TARGET_CONTEXT: u16 = 9;
const WINDOW: u16 = 128;

/// Returns the id of a message: those of open messages differ, and they have no order.
const fn id_of(message: usize) -> u16 {
    ((message * 37 + 11) % 251) as u16
}

impl Model {
    pub(crate) fn new(kind: Kind, payload: usize, seed: u64, messages: Vec<Message>) -> Self {
        let mut rng = Rng::new(seed);
        let start = rng.next_u32();
        let mut segments = vec![];
        for (message, content) in messages.iter().enumerate() {
            let total = content.bytes.len();
            let count = total.div_ceil(payload).max(1);
            for n in 0..count {
                let offset = n * payload;
                let len = payload.min(total - offset);
                let (first, last) = (n == 0, n + 1 == count);
                segments.push(Segment {
                    message,
                    offset,
                    len,
                    first,
                    last,
                    sent_at: None,
                    tries: 0,
                });
            }
        }
        Self {
            kind,
            payload,
            rng,
            out: VecDeque::new(),
            messages,
            segments,
            start,
            acknowledged: 0,
            answered: 0,
            remote: 0,
            rto: Span::millis(if kind == Kind::Suet { 1 } else { 5 }),
            peer_context: 0,
            expected: 0,
            early: BTreeMap::new(),
            active: None,
            received: vec![],
            unmatched: vec![],
            kept: BTreeMap::new(),
            answers: BTreeMap::new(),
            refusals: 0,
        }
    }

    /// Returns whether everything that the model sends has arrived, and nothing waits for a receive.
    pub(crate) fn is_done(&self) -> bool {
        self.acknowledged == self.segments.len()
            && (self.kind == Kind::Suet || self.answered == self.messages.len())
            && self.unmatched.is_empty()
    }

    fn emit(&mut self, packet: &Packet<'_>) {
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes);
        self.out.push_back(bytes);
    }

    /// Sends what may leave now: new packets, and those whose acknowledgement is late.
    pub(crate) fn tick(&mut self, now: Time) {
        let mut end = (self.acknowledged + usize::from(WINDOW)).min(self.segments.len());
        if self.kind == Kind::Reference {
            let current = self.answered;
            let limit = self.segments.iter().position(|segment| segment.message > current);
            end = end.min(limit.unwrap_or(self.segments.len()));
        }
        let mut late = false;
        // The reference repeats the last packet until its response has arrived.
        let from = match self.kind {
            Kind::Suet => self.acknowledged,
            Kind::Reference => {
                let current = self.answered;
                let last = self.segments.iter().position(|s| s.message == current && s.last);
                self.acknowledged.min(last.unwrap_or(self.acknowledged))
            }
        };
        for at in from..end {
            let (rto, segment) = (self.rto, &self.segments[at]);
            let wait = rto * (1 << segment.tries.min(6));
            let due = segment.sent_at.is_none_or(|sent| now.since(sent) >= wait);
            if due || late && self.kind == Kind::Suet {
                late |= segment.sent_at.is_some();
                self.send_segment(now, at);
            }
        }
        let due = self.unmatched.iter().position(|unmatched| unmatched.at <= now);
        if let Some(at) = due {
            let Unmatched { psn, response, .. } = self.unmatched.remove(at);
            let response =
                Response { opcode: ResponseOpcode::Response, list: List::Overflow, ..response };
            self.kept.insert(psn, response);
            self.answers.insert(psn, response);
            self.acknowledge(psn, response);
        }
    }

    fn send_segment(&mut self, now: Time, at: usize) {
        let segment = &mut self.segments[at];
        let retx = segment.sent_at.is_some();
        segment.tries += u8::from(retx);
        segment.sent_at = Some(now);
        let Segment { message, offset, len, first, last, .. } = *segment;
        let content = self.messages[message].clone();
        let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: at as u16 };
        let pds = Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx,
            ack_request: self.kind == Kind::Reference && (last || retx),
            clear_psn_offset: -1,
            psn: Psn(self.start.wrapping_add(at as u32)),
            spdcid: OWN_CONTEXT,
            dest: if self.remote == 0 { syn } else { Dest::Pdc(self.remote) },
            ccc: None,
        };
        let ses = StdRequest {
            opcode: Opcode::TaggedSend,
            delivery_complete: false,
            initiator_error: false,
            relative: true,
            header_data_present: false,
            eom: last,
            som: first,
            message_id: id_of(message),
            ri_generation: 0,
            job_id: u32::from(self.kind == Kind::Reference),
            pid_on_fep: 0,
            resource_index: if self.kind == Kind::Reference { 15 } else { 0 },
            buffer_offset: 0,
            initiator: 0,
            match_bits: content.tag,
            body: if first {
                StdBody::First { header_data: 0 }
            } else {
                StdBody::Next { payload_length: len as u16, message_offset: offset as u32 }
            },
            request_length: content.bytes.len() as u32,
            extension: Extension::None,
        };
        let payload = &content.bytes[offset..offset + len];
        self.emit(&Packet::Request { pds, ses: Ses::Std(ses), payload });
    }

    /// Handles a packet of the endpoint.
    pub(crate) fn receive(&mut self, now: Time, bytes: &[u8]) {
        match parse(bytes).expect("the endpoint sends valid packets") {
            Packet::Request { pds, ses: Ses::Std(request), payload } => {
                self.handle_request(now, &pds, &request, payload);
            }
            Packet::Ack { pds, ses, .. } => self.handle_ack(&pds, &ses),
            Packet::Nack(nack) => self.handle_nack(now, &nack),
            Packet::Control(control) => self.handle_control(&control),
            other => panic!("neither of them handles {other:?}"),
        }
    }

    fn handle_ack(&mut self, pds: &Ack, ses: &Ses) {
        assert_eq!((pds.ext, pds.dpdcid), (AckExt::None, OWN_CONTEXT));
        self.remote = pds.spdcid;
        let acknowledged = pds.cack_psn.0.wrapping_sub(self.start).wrapping_add(1) as usize;
        let Ses::Response(response) = ses else { panic!("an ACK of data has a response") };
        assert_eq!(response.return_code, ReturnCode::Ok, "any other code is fatal");
        assert!(acknowledged <= self.segments.len() + 1, "{pds:?}");
        self.acknowledged = self.acknowledged.max(acknowledged);
        let psn = pds.ack_psn().expect("no probe was sent");
        let at = psn.0.wrapping_sub(self.start) as usize;
        let segment = &self.segments[at];
        assert_eq!(response.message_id, id_of(segment.message), "{at}");
        let total = self.messages[segment.message].bytes.len();
        assert_eq!(response.modified_length as usize, total);
        if segment.last && segment.message == self.answered && self.acknowledged > at {
            self.answered += 1;
        }
    }

    fn handle_nack(&mut self, now: Time, nack: &Nack) {
        let at = nack.psn.0.wrapping_sub(self.start) as usize;
        assert!(!matches!(nack.code, NackCode::UnexpEvent | NackCode::InvDpdcid), "{nack:?}");
        if at < self.segments.len() {
            self.send_segment(now, at);
        }
    }

    fn handle_control(&mut self, control: &Control) {
        match control.kind {
            ControlKind::ClearCommand => {
                let reached = |psn: u32| !Psn(psn).is_after(Psn(control.payload));
                self.kept.retain(|psn, _| !reached(*psn));
                let lost = self.unmatched.iter().any(|unmatched| reached(unmatched.psn));
                assert!(!lost, "a response was cleared that was never sent");
            }
            ControlKind::CloseCommand => {
                let ack = Ack { next: NextHeader::None, ..self.ack(control.psn.0) };
                let ack = Ack { cack_psn: control.psn, ack_psn_offset: 0, ..ack };
                self.emit(&Packet::Ack { pds: ack, ses: Ses::None, payload: &[] });
            }
            ControlKind::CloseRequest => {}
            kind => panic!("neither of them handles {kind}"),
        }
    }

    fn ack(&self, psn: u32) -> Ack {
        let request = if self.kept.is_empty() { AckRequest::None } else { AckRequest::Clear };
        let cack = Psn(self.expected.wrapping_sub(1));
        Ack {
            next: NextHeader::Response,
            ce: false,
            retx: false,
            probe: false,
            request,
            ack_psn_offset: Psn(psn).distance(cack) as i16,
            cack_psn: cack,
            spdcid: TARGET_CONTEXT,
            dpdcid: self.peer_context,
            ext: AckExt::None,
        }
    }

    fn acknowledge(&mut self, psn: u32, response: Response) {
        let pds = self.ack(psn);
        self.emit(&Packet::Ack { pds, ses: Ses::Response(response), payload: &[] });
    }

    fn handle_request(&mut self, now: Time, pds: &Request, request: &StdRequest, payload: &[u8]) {
        assert!(request.relative && request.initiator == self.initiator());
        let full = request.eom || payload.len() == self.payload;
        assert!(full, "all packets but the last one are full");
        if let Dest::Syn { psn_offset, .. } = pds.dest
            && self.peer_context == 0
        {
            self.peer_context = pds.spdcid;
            self.expected = pds.psn.0.wrapping_sub(psn_offset.into());
        }
        assert_eq!(self.peer_context, pds.spdcid, "one context at a time");
        let distance = pds.psn.distance(Psn(self.expected));
        assert!(distance < i32::from(WINDOW), "the window has 128 packets");
        let psn = pds.psn.0;
        if distance < 0 || self.early.contains_key(&psn) {
            if (self.kind == Kind::Reference || pds.retx) && distance < 0 {
                let response = self.answers[&psn];
                self.acknowledge(psn, response);
            }
            return;
        }
        if distance > 0 && self.kind == Kind::Suet {
            return self.send_gap(psn);
        }
        self.early.insert(psn, (*request, payload.to_vec()));
        while let Some((request, payload)) = self.early.remove(&self.expected) {
            let psn = self.expected;
            self.expected = psn.wrapping_add(1);
            let response = self.take(now, psn, &request, &payload);
            self.answers.insert(psn, response);
            if request.som || request.eom || psn == pds.psn.0 && pds.ack_request {
                self.acknowledge(psn, response);
            }
        }
    }

    fn send_gap(&mut self, psn: u32) {
        let nack = Nack {
            ce: false,
            retx: false,
            rudi: false,
            code: NackCode::RodOoo,
            vendor_code: 0,
            psn: Psn(psn),
            spdcid: TARGET_CONTEXT,
            dpdcid: self.peer_context,
            payload: 0,
            ccx: None,
        };
        self.emit(&Packet::Nack(nack));
    }

    fn initiator(&self) -> u32 {
        if self.kind == Kind::Reference { 16 } else { 0 }
    }

    /// Takes a packet of a message in order. Returns the response.
    fn take(&mut self, now: Time, psn: u32, request: &StdRequest, payload: &[u8]) -> Response {
        let total = request.request_length as usize;
        let mut response = Response {
            list: List::Expected,
            opcode: ResponseOpcode::Default,
            return_code: ReturnCode::Ok,
            message_id: request.message_id,
            ri_generation: 0,
            job_id: request.job_id,
            modified_length: request.request_length,
        };
        if request.som {
            assert!(self.active.is_none(), "one message is active at a time");
            let matched = !self.rng.chance(0.2);
            let refused = !matched && self.kind == Kind::Reference;
            if !matched && self.kind == Kind::Suet {
                response.opcode = ResponseOpcode::NoResponse;
                let at = now + Span::micros(u64::from(self.rng.below(3000)));
                self.unmatched.push(Unmatched { psn, response, at });
            }
            self.refusals += u32::from(refused);
            let message = Message { tag: request.match_bits, bytes: vec![0; total] };
            let incoming = Incoming { id: request.message_id, message, received: 0 };
            self.active = (!refused).then_some(incoming);
        }
        let Some(active) = self.active.as_mut() else {
            // Nothing is kept of a message that no receive matched.
            assert_eq!(self.kind, Kind::Reference, "a message begins with SOM");
            response.opcode = ResponseOpcode::Response;
            response.return_code = ReturnCode::NoMatch;
            response.modified_length = 0;
            self.kept.insert(psn, response);
            return response;
        };
        assert_eq!(active.id, request.message_id);
        let offset = match request.body {
            StdBody::First { .. } => 0,
            StdBody::Next { message_offset, .. } => message_offset as usize,
        };
        active.message.bytes[offset..offset + payload.len()].copy_from_slice(payload);
        active.received += payload.len();
        if request.eom {
            assert!(active.received == total, "a message has all its packets");
            let whole = self.active.take().expect("it is active");
            self.received.push(whole.message);
        }
        response
    }
}
