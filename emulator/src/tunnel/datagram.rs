//! Format of the UDP datagrams between the two ends of a tunnel, little endian.
//!
//! ```text
//!  0  "squallt1"
//!  8  session: a number that the near end drew (u64)
//! 16  connection: its number in the session; the first is 1 (u32)
//! 20  number of the piece, where there is one (u32)
//! 24  kind (u8)
//! 25  what follows, by kind
//! ```

use squall_net::emulator::frame::MAX_FRAME;

/// First bytes of every datagram: the protocol and its version.
const MAGIC: [u8; 8] = *b"squallt1";
/// Bytes before the content of a datagram, which depends on its kind.
pub(super) const HEAD: usize = 25;
/// Longest datagram, the limit of UDP over IPv4.
pub(super) const MOST: usize = 65_507;
// A frame with the largest packet that an emulator accepts fits into a datagram. Longer frames are
// refused.
const _: () = assert!(MOST < HEAD + MAX_FRAME && MOST - HEAD > 65_000 + 64);

/// Identifies a connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) session: u64,
    pub(super) number: u32,
}

/// The content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// The near end asks whether the far end serves the session; the far end answers with the same
    /// datagram.
    Keepalive,
    /// A frame that may get lost: an endpoint's packet, or the notice that no endpoint is attached
    /// at a packet's destination.
    Frame(&'a [u8]),
    /// The next bytes of the connection's reliable part; a piece without bytes marks the end.
    Piece(u32, &'a [u8]),
    /// Acknowledges the piece of this number.
    Acknowledged(u32),
    /// The connection does not exist, or was closed.
    Closed,
}

const KEEPALIVE: u8 = 1;
const FRAME: u8 = 2;
const PIECE: u8 = 3;
const ACKNOWLEDGED: u8 = 4;
const CLOSED: u8 = 5;

impl<'a> Content<'a> {
    /// Encodes the datagram into `out`, whose content it replaces.
    pub(super) fn write(&self, name: Name, out: &mut Vec<u8>) {
        let (kind, piece, rest) = match *self {
            Self::Keepalive => (KEEPALIVE, 0, &[][..]),
            Self::Frame(frame) => (FRAME, 0, frame),
            Self::Piece(piece, bytes) => (PIECE, piece, bytes),
            Self::Acknowledged(piece) => (ACKNOWLEDGED, piece, &[][..]),
            Self::Closed => (CLOSED, 0, &[][..]),
        };
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&name.session.to_le_bytes());
        out.extend_from_slice(&name.number.to_le_bytes());
        out.extend_from_slice(&piece.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(rest);
    }

    /// Decodes a datagram; `None` if it is not a valid datagram of this protocol.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Name, Self)> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (session, rest) = rest.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let (piece, rest) = rest.split_first_chunk::<4>()?;
        let (&kind, rest) = rest.split_first()?;
        let name =
            Name { session: u64::from_le_bytes(*session), number: u32::from_le_bytes(*number) };
        let piece = u32::from_le_bytes(*piece);
        let content = match (kind, rest) {
            (KEEPALIVE, []) => Self::Keepalive,
            (FRAME, frame) => Self::Frame(frame),
            (PIECE, bytes) => Self::Piece(piece, bytes),
            (ACKNOWLEDGED, []) => Self::Acknowledged(piece),
            (CLOSED, []) => Self::Closed,
            _ => return None,
        };
        Some((name, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_everything_else_is_nobodys() {
        let name = Name { session: 0x0123_4567_89ab_cdef, number: 7 };
        let mut bytes = Vec::new();
        for content in [
            Content::Keepalive,
            Content::Frame(b"frame"),
            Content::Piece(3, b"piece"),
            Content::Piece(u32::MAX, b""),
            Content::Acknowledged(9),
            Content::Closed,
        ] {
            content.write(name, &mut bytes);
            assert_eq!(Content::read(&bytes), Some((name, content)));
            for len in 0..HEAD {
                assert_eq!(Content::read(&bytes[..len]), None, "{content:?} cut to {len}");
            }
        }
        Content::Keepalive.write(name, &mut bytes);
        bytes.push(0);
        assert_eq!(Content::read(&bytes), None, "longer than it can be");
        bytes[24] = 6;
        assert_eq!(Content::read(&bytes), None, "no kind");
        bytes[0] = b'S';
        assert_eq!(Content::read(&bytes), None, "another program's");
    }
}
