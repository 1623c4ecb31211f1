//! The numbers by which packets name contexts: a secret permutation of the slots in the table.

use crate::base::SecretRng;

/// Rounds of the permutation. Four rounds with a random function each look random to observers of
/// some of its values (Luby and Rackoff, SIAM Journal on Computing 17, 1988).
const ROUNDS: usize = 4;

/// The mapping from slots to context numbers, which are 1 to 65535.
///
/// The order in which contexts are opened is easy to guess. Their numbers must not be, because they
/// are part of what distinguishes the peer's packets from forged ones. The number is therefore a
/// secret permutation of the slot: a Feistel network on its two bytes.
#[derive(Debug)]
pub(super) struct ContextNumbers {
    /// The four random functions of the permutation, as tables. `None` numbers contexts in the
    /// order of their slots, for networks where no packets are forged.
    rounds: Option<Box<[[u8; 256]; ROUNDS]>>,
}

impl ContextNumbers {
    /// Returns a mapping that numbers contexts in the order of their slots.
    pub(super) const fn sequential() -> Self {
        Self { rounds: None }
    }

    /// Returns a mapping of slots to numbers that cannot be guessed without `secret`.
    pub(super) fn secret(secret: &mut SecretRng) -> Self {
        let mut rounds = Box::new([[0; 256]; ROUNDS]);
        for value in rounds.as_flattened_mut().chunks_exact_mut(4) {
            value.copy_from_slice(&secret.next_u32().to_ne_bytes());
        }
        Self { rounds: Some(rounds) }
    }

    /// Returns the number of the context in `slot` on the wire; `slot` is below 65535.
    #[inline]
    pub(super) fn number(&self, slot: u16) -> u16 {
        let Some(rounds) = &self.rounds else { return slot + 1 };
        // 65535 is no slot, so its image is free for the slot whose number would be 0.
        match forward(rounds, slot) {
            0 => forward(rounds, u16::MAX),
            number => number,
        }
    }

    /// Returns the slot of the context with a number; `None` for 0, which names no context.
    #[inline]
    pub(super) fn slot(&self, number: u16) -> Option<u16> {
        let Some(rounds) = &self.rounds else { return number.checked_sub(1) };
        if number == 0 {
            return None;
        }
        match backward(rounds, number) {
            u16::MAX => Some(backward(rounds, 0)),
            slot => Some(slot),
        }
    }
}

#[inline]
fn forward(rounds: &[[u8; 256]; ROUNDS], value: u16) -> u16 {
    let [mut left, mut right] = value.to_be_bytes();
    for round in rounds {
        (left, right) = (right, left ^ round[usize::from(right)]);
    }
    u16::from_be_bytes([left, right])
}

#[inline]
fn backward(rounds: &[[u8; 256]; ROUNDS], value: u16) -> u16 {
    let [mut left, mut right] = value.to_be_bytes();
    for round in rounds.iter().rev() {
        (left, right) = (right ^ round[usize::from(left)], left);
    }
    u16::from_be_bytes([left, right])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_number_of_its_own_and_none_is_zero() {
        for numbering in [
            ContextNumbers::sequential(),
            ContextNumbers::secret(&mut SecretRng::from_seed([1; 32])),
            ContextNumbers::secret(&mut SecretRng::from_seed([2; 32])),
        ] {
            let mut seen = vec![false; 1 << 16];
            for slot in 0..u16::MAX {
                let number = numbering.number(slot);
                assert!(number != 0 && !std::mem::replace(&mut seen[usize::from(number)], true));
                assert_eq!(numbering.slot(number), Some(slot));
            }
            assert_eq!(numbering.slot(0), None);
        }
    }

    #[test]
    fn numbers_of_different_secrets_differ() {
        let [a, b] =
            [1, 2].map(|seed| ContextNumbers::secret(&mut SecretRng::from_seed([seed; 32])));
        let same = (0..1000).filter(|&slot| a.number(slot) == b.number(slot)).count();
        assert!(same < 5, "{same} of 1000");
    }
}
