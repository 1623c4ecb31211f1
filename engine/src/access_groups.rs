//! RMA and atomic operations of several remote ranges, as their target sees them.
//!
//! Each range is a request of its own, which may arrive before or after the others, and even on another context of
//! the same peer. The target reports the operation once, when all its requests have ended. A request that the target
//! refuses never ends, and then neither does the group: its initiator gets the error, and the target reports nothing.
//! Such a group is *stale*, and is recognised by its number: the groups that an initiator has open at one target are
//! never more than [`MAX_SPAN`] numbers apart.

use std::collections::HashMap;

use crate::base::RegionId;
use crate::completion::OpKind;
use crate::operation::PeerId;
use crate::wire::StdRequest;

/// Largest number of requests of a group: three bits of the header.
pub(crate) const MAX_REQUESTS: usize = 8;
/// Largest distance between the numbers of open groups of one initiator at one target.
pub(crate) const MAX_SPAN: u16 = 1 << 13;
/// Number of bits of the number that names a group of requests.
const NUMBER_BITS: u32 = 15;
const NUMBERS: u16 = (1 << NUMBER_BITS) - 1;
/// The bits of `resource_index` that name a resource, below those of the group's number.
const RESOURCE_BITS: u32 = 2;
/// Number of bits of the header field `ri_generation` that belong to the group's number.
const GENERATION_BITS: u32 = 5;
/// Number of group numbers after which stale groups are searched for again, so that the search
/// costs little for each group.
const SWEEP: u16 = 1 << 10;
/// Largest number of groups of all peers outside the job together.
const MAX_ALL_OUTSIDE: usize = 1 << 16;

/// The group to which a request belongs, as its header names it (`docs/wire.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupTag {
    number: u16,
    requests: u8,
}

impl GroupTag {
    /// Tag of a request that is a whole operation by itself, and so belongs to no group.
    pub(crate) const NONE: Self = Self { number: 0, requests: 1 };

    /// Creates the tag of the requests of an operation of `requests` ranges, at most [`MAX_REQUESTS`].
    pub(crate) const fn new(number: u16, requests: usize) -> Self {
        if requests < 2 {
            return Self::NONE;
        }
        Self { number: number & NUMBERS, requests: requests as u8 }
    }

    /// Returns the group of a request, and the resource that the request names.
    #[inline]
    pub(crate) const fn read(request: &StdRequest) -> (Self, u16) {
        let requests = (request.ri_generation >> GENERATION_BITS) + 1;
        if requests == 1 {
            return (Self::NONE, request.resource_index);
        }
        let high = (request.ri_generation as u16) << (NUMBER_BITS - GENERATION_BITS);
        let number = (high | request.resource_index >> RESOURCE_BITS) & NUMBERS;
        (Self { number, requests }, request.resource_index & ((1 << RESOURCE_BITS) - 1))
    }

    /// Returns the header fields `ri_generation` and `resource_index` of a request of this group
    /// for a resource.
    #[inline]
    pub(crate) const fn write(self, resource: u16) -> (u8, u16) {
        let high = (self.number >> (NUMBER_BITS - GENERATION_BITS)) as u8;
        let generation = (self.requests - 1) << GENERATION_BITS | high;
        let low = self.number & ((1 << (NUMBER_BITS - GENERATION_BITS)) - 1);
        (generation, low << RESOURCE_BITS | resource)
    }

    /// Returns whether the request is a whole operation by itself, and so belongs to no group.
    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.requests == 1
    }
}

/// Returns how far group `number` is ahead of `other`, or `None` if it is not ahead.
const fn distance(number: u16, other: u16) -> Option<u16> {
    let ahead = number.wrapping_sub(other) & NUMBERS;
    if ahead == 0 || ahead > NUMBERS / 2 { None } else { Some(ahead) }
}

/// A peer's access to registered memory that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerAccess {
    pub(crate) kind: OpKind,
    pub(crate) region: RegionId,
    pub(crate) len: u64,
    /// Remote CQ data that the access delivered, if any.
    pub(crate) data: Option<u64>,
}

/// An operation of several ranges of which some requests have ended, and others have not.
#[derive(Clone, Copy, Debug)]
struct OpenGroup {
    left: u8,
    access: PeerAccess,
    /// The different memory regions that the requests that have ended accessed.
    regions: [RegionId; MAX_REQUESTS],
}

impl OpenGroup {
    fn add_region(&mut self, region: RegionId) {
        for known in &mut self.regions {
            if *known == region {
                return;
            }
            if *known == RegionId::LENT {
                *known = region;
                return;
            }
        }
    }
}

/// The operations of several ranges of one peer that have not ended at this target.
#[derive(Debug)]
struct PeerGroups {
    /// The peer was outside the job when its first open group began.
    outside: bool,
    /// The newest number of a group of the peer, and the newest number at the last search for stale
    /// groups.
    newest: u16,
    swept: u16,
    groups: HashMap<u16, OpenGroup>,
}

impl PeerGroups {
    /// Records that a request of group `number` has ended. Removes stale groups and returns how
    /// many.
    fn advance(&mut self, number: u16) -> usize {
        if distance(number, self.newest).is_some() {
            self.newest = number;
        }
        if distance(self.newest, self.swept).is_none_or(|ahead| ahead < SWEEP) {
            return 0;
        }
        self.swept = self.newest;
        let before = self.groups.len();
        let newest = self.newest;
        self.groups
            .retain(|number, _| distance(newest, *number).is_none_or(|behind| behind < MAX_SPAN));
        before - self.groups.len()
    }
}

/// An operation of several ranges that has ended: the access to report, and the regions that it
/// accessed; unused entries are [`RegionId::LENT`].
pub(crate) type EndedGroup = (PeerAccess, [RegionId; MAX_REQUESTS]);

/// The operations of several ranges of all peers that have not ended at this target.
#[derive(Debug, Default)]
pub(crate) struct AccessGroups {
    peers: HashMap<PeerId, PeerGroups>,
    /// Number of open groups of peers outside the job.
    outside: usize,
}

impl AccessGroups {
    /// Returns whether there is room for another open group of a peer; `outside` says that the peer
    /// is outside the job.
    pub(crate) fn has_room(&self, outside: bool) -> bool {
        !outside || self.outside < MAX_ALL_OUTSIDE
    }

    /// Records that a request of a group has ended. Returns the operation of the group if that was
    /// its last request.
    pub(crate) fn end_request(
        &mut self,
        (peer, outside): (PeerId, bool),
        tag: GroupTag,
        access: PeerAccess,
    ) -> Option<EndedGroup> {
        let GroupTag { number, requests } = tag;
        let fresh =
            || PeerGroups { outside, newest: number, swept: number, groups: HashMap::new() };
        let of = self.peers.entry(peer).or_insert_with(fresh);
        let stale = of.advance(number);
        let is_new = !of.groups.contains_key(&number);
        if of.outside {
            self.outside = self.outside + usize::from(is_new) - stale;
        }
        let group = of.groups.entry(number).or_insert(OpenGroup {
            left: requests,
            access: PeerAccess { len: 0, data: None, ..access },
            regions: [RegionId::LENT; MAX_REQUESTS],
        });
        group.left -= 1;
        group.access.len += access.len;
        group.access.data = group.access.data.or(access.data);
        group.add_region(access.region);
        if group.left > 0 {
            return None;
        }
        let ended = (group.access, group.regions);
        of.groups.remove(&number);
        self.outside -= usize::from(of.outside);
        Some(ended)
    }

    /// Returns the number of operations of which some requests have ended.
    pub(crate) fn len(&self) -> usize {
        self.peers.values().map(|of| of.groups.len()).sum()
    }

    /// Removes the open groups of a peer that the engine forgets.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        if let Some(of) = self.peers.remove(&peer)
            && of.outside
        {
            self.outside -= of.groups.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: (PeerId, bool) = (PeerId(3), false);
    const OUTSIDE: (PeerId, bool) = (PeerId(4), true);

    fn access(region: u32, len: u64, data: Option<u64>) -> PeerAccess {
        PeerAccess { kind: OpKind::RemoteWrite, region: RegionId(region), len, data }
    }

    #[test]
    fn tag_survives_its_header_fields() {
        for number in [0, 1, 0x3ff, 0x400, 0x7fff] {
            for (requests, resource) in [(2, 0), (4, 1), (MAX_REQUESTS, 3)] {
                let tag = GroupTag::new(number, requests);
                let (ri_generation, resource_index) = tag.write(resource);
                assert!(resource_index < 1 << 12);
                let request = StdRequest { ri_generation, resource_index, ..request() };
                assert_eq!(GroupTag::read(&request), (tag, resource));
            }
        }
        assert_eq!(GroupTag::NONE.write(2), (0, 2));
        let request = StdRequest { resource_index: 0xfff, ..request() };
        assert_eq!(GroupTag::read(&request), (GroupTag::NONE, 0xfff));
    }

    fn request() -> StdRequest {
        let mut bytes = [0; StdRequest::LEN];
        bytes[0] = 2;
        StdRequest::read(&bytes).expect("a request")
    }

    #[test]
    fn operation_ends_with_its_last_request() {
        let mut groups = AccessGroups::default();
        let (one, two) = (GroupTag::new(7, 3), GroupTag::new(8, 2));
        assert_eq!(groups.end_request(PEER, one, access(1, 10, None)), None);
        assert_eq!(groups.end_request(PEER, two, access(1, 1, Some(5))), None);
        assert_eq!(groups.end_request(PEER, one, access(2, 20, None)), None);
        let (ended, regions) =
            groups.end_request(PEER, two, access(1, 2, Some(5))).expect("the second one");
        assert_eq!((ended, regions[1]), (access(1, 3, Some(5)), RegionId::LENT));
        let (ended, regions) =
            groups.end_request(PEER, one, access(1, 30, None)).expect("the first one");
        assert_eq!((ended.len, &regions[..3]), (60, &[RegionId(1), RegionId(2), RegionId(0)][..]));
        assert_eq!(groups.len(), 0);
    }

    #[test]
    fn stale_groups_are_removed_before_their_numbers_are_reused() {
        for start in [0, 5, NUMBERS] {
            let mut groups = AccessGroups::default();
            assert_eq!(
                groups.end_request(OUTSIDE, GroupTag::new(start, 2), access(1, 1, None)),
                None
            );
            for ahead in 1..=NUMBERS {
                let tag = GroupTag::new(start.wrapping_add(ahead), 2);
                for last in [false, true] {
                    let ended = groups.end_request(OUTSIDE, tag, access(1, 1, None));
                    assert_eq!(ended.is_some(), last);
                }
                assert!(groups.len() == 1 || ahead >= MAX_SPAN);
                assert_eq!(groups.outside, groups.len());
            }
            assert_eq!(groups.len(), 0);
            groups.end_request(OUTSIDE, GroupTag::new(start, 2), access(1, 1, None));
            groups.forget(OUTSIDE.0);
            assert_eq!((groups.len(), groups.outside), (0, 0));
        }
    }

    #[test]
    fn groups_of_peers_outside_the_job_are_bounded() {
        let mut groups = AccessGroups::default();
        let mut number = 0u16;
        for peer in 0.. {
            if !groups.has_room(true) {
                break;
            }
            for _ in 0..20_000 {
                number = number.wrapping_add(1);
                groups.end_request(
                    (PeerId(peer), true),
                    GroupTag::new(number & NUMBERS, 2),
                    access(1, 1, None),
                );
            }
            let of = groups.peers[&PeerId(peer)].groups.len();
            assert!(of <= usize::from(MAX_SPAN + SWEEP), "{of}");
        }
        assert!(groups.has_room(false) && groups.outside >= MAX_ALL_OUTSIDE);
    }
}
