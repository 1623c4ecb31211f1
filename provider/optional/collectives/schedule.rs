//! Schedules of collective operations: the sends and receives of each round. A schedule follows from the operation, the
//! number of members and the rank alone, for any number of members.
//!
//! A member has one piece of memory for an operation, in which all that it sends and receives has a place. It begins a
//! round when everything of the one before has ended. Between two members messages are taken in the order they are
//! sent, so they need no numbers.
//!
//! | Operation | Schedule | Rounds of n members |
//! |---|---|---|
//! | barrier | dissemination | log n |
//! | broadcast, reduce | binomial tree | log n |
//! | all-reduce, short | recursive doubling, between the largest power of two; the others lend theirs to a neighbour | log n + 2 |
//! | all-reduce, long | ring: reduce-scatter of n parts, then all-gather of them | 2 (n - 1) |
//! | all-gather | ring | n - 1 |
//! | all-to-all | pairwise exchange | n - 1 |
//! | reduce-scatter | the same, then each reduces what is its own | n - 1 |
//! | scatter, gather | the root speaks with each | n - 1 |
//!
//! Reductions combine vectors in the same order at every member that has the result, so that all results are equal to
//! the last bit: the lower rank's vector comes first, or one member reduces for all.
//!
//! # Which all-reduce
//!
//! Every member sends its whole vector in each round of the doubling, and an n-th of it in each round of the ring. A
//! round takes as long as [`ROUND`] bytes more would, so the one is chosen of which the rounds are fewer bytes:
//!
//! | members | doubling, bytes sent of v | ring, of v | ring from v on |
//! |---:|---:|---:|---:|
//! | 2 | 1 | 1 | never |
//! | 3 | 3 | 1.33 | 10 KiB |
//! | 4 | 2 | 1.5 | 128 KiB |
//! | 5 | 4 | 1.6 | 27 KiB |
//! | 8 | 3 | 1.75 | 141 KiB |
//! | 16 | 4 | 1.88 | 196 KiB |

/// Cost of a round apart from its bytes, expressed as the bytes of a long message that are transferred in the same
/// time. A message of a few bytes is in flight for 5 us, and 16 KiB more of a long one take 4 to 5 us
/// (`docs/performance.md`).
const ROUND: usize = 16 << 10;
/// Alignment in bytes of the parts of a vector. It is a multiple of the size of every type.
const PART_ALIGN: usize = 64;

/// A piece of an operation's memory: offset and length in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// A local change of an operation's memory, made at the end of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Local {
    /// Copies `len` bytes of the operation's memory from one offset to another.
    Copy { from: usize, to: usize, len: usize },
    /// Combines the values at `first` with those at `second`, and stores the results at `to`, which may be one of the
    /// two.
    Fold { first: usize, second: usize, to: usize, len: usize },
}

/// A round of a collective operation: at most one send and one receive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Round {
    /// The rank of the member to which the round sends, and the piece that it sends.
    pub(super) send: Option<(usize, Piece)>,
    /// The rank of the member from which the round receives, and the place of the received bytes.
    pub(super) receive: Option<(usize, Piece)>,
    pub(super) then: Vec<Local>,
}

/// The rounds of one member of a collective operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Schedule {
    /// Size of the member's memory for the operation, in bytes.
    pub(super) size: usize,
    /// The place of the member's own values in that memory.
    pub(super) input: Option<Piece>,
    /// The place of the result in that memory at the end.
    pub(super) output: Option<Piece>,
    pub(super) rounds: Vec<Round>,
}

/// The kind of a collective operation. A root is a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Barrier,
    Broadcast { root: usize },
    AllToAll,
    AllReduce,
    AllGather,
    ReduceScatter,
    Reduce { root: usize },
    Scatter { root: usize },
    Gather { root: usize },
}

/// Returns the schedule of member `rank` of `members`, each of whose share is `block` bytes. `None` if the operation
/// would need more memory than there can be.
pub(super) fn schedule(kind: Kind, rank: usize, members: usize, block: usize) -> Option<Schedule> {
    let size =
        block.checked_mul(members)?.checked_mul(2).filter(|size| *size <= isize::MAX as usize);
    size?;
    let me = Member { rank, members, block };
    Some(match kind {
        Kind::Barrier => me.barrier(),
        Kind::Broadcast { root } => me.broadcast(root),
        Kind::AllToAll => me.all_to_all(),
        Kind::AllReduce => me.all_reduce(),
        Kind::AllGather => me.all_gather(),
        Kind::ReduceScatter => me.reduce_scatter(),
        Kind::Reduce { root } => me.reduce(root),
        Kind::Scatter { root } => me.scatter(root),
        Kind::Gather { root } => me.gather(root),
    })
}

/// A member of a group, for which a schedule is made.
#[derive(Clone, Copy)]
struct Member {
    rank: usize,
    members: usize,
    block: usize,
}

impl Member {
    /// Returns the place of block `n` of the operation's memory.
    fn piece(&self, n: usize) -> Piece {
        Piece { at: n * self.block, len: self.block }
    }

    /// Returns the place of the blocks from `n` on, one for each member.
    fn pieces(&self, n: usize) -> Piece {
        Piece { at: n * self.block, len: self.members * self.block }
    }

    /// Returns the rank `distance` ranks after the member's own, modulo their number.
    fn rank_after(&self, distance: usize) -> usize {
        (self.rank + distance) % self.members
    }

    /// Returns the rank `distance` ranks before the member's own, modulo their number.
    fn rank_before(&self, distance: usize) -> usize {
        (self.rank + self.members - distance) % self.members
    }

    fn send(to: usize, piece: Piece) -> Round {
        Round { send: Some((to, piece)), ..Round::default() }
    }

    fn receive(from: usize, piece: Piece) -> Round {
        Round { receive: Some((from, piece)), ..Round::default() }
    }

    fn barrier(&self) -> Schedule {
        let nothing = Piece { at: 0, len: 0 };
        let distances = (0..).map(|n| 1usize << n).take_while(|distance| *distance < self.members);
        let round = |distance| Round {
            send: Some((self.rank_after(distance), nothing)),
            receive: Some((self.rank_before(distance), nothing)),
            then: Vec::new(),
        };
        Schedule { rounds: distances.map(round).collect(), ..Schedule::default() }
    }

    fn broadcast(&self, root: usize) -> Schedule {
        let whole = self.piece(0);
        // As if the root were rank 0.
        let relative = (self.rank + self.members - root) % self.members;
        let real = |relative: usize| (relative + root) % self.members;
        let mut rounds = Vec::new();
        // The lowest bit of the number says in which round it is reached; the root, in none.
        let mut bit = 1;
        while bit < self.members && relative & bit == 0 {
            bit <<= 1;
        }
        if relative != 0 {
            rounds.push(Self::receive(real(relative - bit), whole));
        }
        while bit > 1 {
            bit >>= 1;
            if relative + bit < self.members {
                rounds.push(Self::send(real(relative + bit), whole));
            }
        }
        let is_root = relative == 0;
        Schedule {
            size: self.block,
            input: is_root.then_some(whole),
            output: (!is_root).then_some(whole),
            rounds,
        }
    }

    fn reduce(&self, root: usize) -> Schedule {
        let (sum, other) = (self.piece(0), self.piece(1));
        let relative = (self.rank + self.members - root) % self.members;
        let real = |relative: usize| (relative + root) % self.members;
        let mut rounds = Vec::new();
        let mut bit = 1;
        while bit < self.members {
            if relative & bit != 0 {
                rounds.push(Self::send(real(relative - bit), sum));
                break;
            }
            if relative + bit < self.members {
                let fold =
                    Local::Fold { first: sum.at, second: other.at, to: sum.at, len: sum.len };
                let round = Self::receive(real(relative + bit), other);
                rounds.push(Round { then: vec![fold], ..round });
            }
            bit <<= 1;
        }
        Schedule {
            size: 2 * self.block,
            input: Some(sum),
            output: (relative == 0).then_some(sum),
            rounds,
        }
    }

    fn all_reduce(&self) -> Schedule {
        if self.ring_is_shorter() { self.all_reduce_ring() } else { self.all_reduce_doubling() }
    }

    /// Returns whether the rounds of the ring take less time than those of the doubling. The answer is the same for all
    /// members.
    fn ring_is_shorter(&self) -> bool {
        let lent = if self.members.is_power_of_two() { 0 } else { 2 };
        let doubling = self.members.ilog2() as usize + lent;
        let ring = 2 * (self.members - 1);
        let time = |rounds: usize, bytes: usize| rounds.saturating_mul(bytes.saturating_add(ROUND));
        time(ring, self.part(0).len) < time(doubling, self.block)
    }

    /// Returns the n-th part of the vector, which has as many parts as there are members. The last
    /// parts may be shorter, or empty.
    fn part(&self, n: usize) -> Piece {
        let most = self.block.div_ceil(self.members).next_multiple_of(PART_ALIGN);
        let at = most.saturating_mul(n).min(self.block);
        Piece { at, len: most.min(self.block - at) }
    }

    fn all_reduce_ring(&self) -> Schedule {
        let whole = self.piece(0);
        let scratch = self.block;
        let (next, before) = (self.rank_after(1), self.rank_before(1));
        let steps = 0..self.members - 1;
        // What the member before has combined so far goes on, with its own values.
        let reduce = |step: usize| {
            let (sent, part) =
                (self.part(self.rank_before(step)), self.part(self.rank_before(step + 1)));
            let Piece { at, len } = part;
            Round {
                send: Some((next, sent)),
                receive: Some((before, Piece { at: scratch, len })),
                then: vec![Local::Fold { first: scratch, second: at, to: at, len }],
            }
        };
        // Now the part after its own is whole here.
        let gather = |step: usize| Round {
            send: Some((next, self.part((self.rank + self.members + 1 - step) % self.members))),
            receive: Some((before, self.part(self.rank_before(step)))),
            then: Vec::new(),
        };
        Schedule {
            size: self.block + self.part(0).len,
            input: Some(whole),
            output: Some(whole),
            rounds: steps.clone().map(reduce).chain(steps.map(gather)).collect(),
        }
    }

    fn all_reduce_doubling(&self) -> Schedule {
        let (sum, other) = (self.piece(0), self.piece(1));
        let fold = |partner: usize| {
            let mine_first = self.rank < partner;
            let (first, second) = if mine_first { (sum.at, other.at) } else { (other.at, sum.at) };
            vec![Local::Fold { first, second, to: sum.at, len: sum.len }]
        };
        let mut rounds = Vec::new();
        let power = 1usize << self.members.ilog2();
        // The first so many pairs are one member each of those that double.
        let pairs = self.members - power;
        let paired = self.rank < 2 * pairs;
        let odd = self.rank % 2 == 1;
        if paired && !odd {
            rounds.push(Self::send(self.rank + 1, sum));
            rounds.push(Self::receive(self.rank + 1, sum));
        } else {
            if paired {
                let round = Self::receive(self.rank - 1, other);
                rounds.push(Round { then: fold(self.rank - 1), ..round });
            }
            let number = if paired { self.rank / 2 } else { self.rank - pairs };
            let real = |number: usize| {
                if number < pairs { 2 * number + 1 } else { number + pairs }
            };
            let mut bit = 1;
            while bit < power {
                let partner = real(number ^ bit);
                rounds.push(Round {
                    send: Some((partner, sum)),
                    receive: Some((partner, other)),
                    then: fold(partner),
                });
                bit <<= 1;
            }
            if paired {
                rounds.push(Self::send(self.rank - 1, sum));
            }
        }
        Schedule { size: 2 * self.block, input: Some(sum), output: Some(sum), rounds }
    }

    fn all_gather(&self) -> Schedule {
        let round = |step: usize| Round {
            send: Some((self.rank_after(1), self.piece(self.rank_before(step)))),
            receive: Some((self.rank_before(1), self.piece(self.rank_before(step + 1)))),
            then: Vec::new(),
        };
        Schedule {
            size: self.members * self.block,
            input: Some(self.piece(self.rank)),
            output: Some(self.pieces(0)),
            rounds: (0..self.members - 1).map(round).collect(),
        }
    }

    fn all_to_all(&self) -> Schedule {
        let result = |n: usize| self.piece(self.members + n);
        let own = Local::Copy {
            from: self.piece(self.rank).at,
            to: result(self.rank).at,
            len: self.block,
        };
        let mut rounds = vec![Round { then: vec![own], ..Round::default() }];
        rounds.extend((1..self.members).map(|step| Round {
            send: Some((self.rank_after(step), self.piece(self.rank_after(step)))),
            receive: Some((self.rank_before(step), result(self.rank_before(step)))),
            then: Vec::new(),
        }));
        Schedule {
            size: 2 * self.members * self.block,
            input: Some(self.pieces(0)),
            output: Some(self.pieces(self.members)),
            rounds,
        }
    }

    fn reduce_scatter(&self) -> Schedule {
        let Schedule { size, input, mut rounds, .. } = self.all_to_all();
        let own = self.piece(self.members);
        let fold = |n: usize| Local::Fold {
            first: own.at,
            second: self.piece(self.members + n).at,
            to: own.at,
            len: self.block,
        };
        rounds.push(Round { then: (1..self.members).map(fold).collect(), ..Round::default() });
        Schedule { size, input, output: Some(own), rounds }
    }

    fn scatter(&self, root: usize) -> Schedule {
        if self.rank != root {
            return Schedule {
                size: self.block,
                input: None,
                output: Some(self.piece(0)),
                rounds: vec![Self::receive(root, self.piece(0))],
            };
        }
        let to = (1..self.members).map(|step| self.rank_after(step));
        Schedule {
            size: self.members * self.block,
            input: Some(self.pieces(0)),
            output: Some(self.piece(root)),
            rounds: to.map(|to| Self::send(to, self.piece(to))).collect(),
        }
    }

    fn gather(&self, root: usize) -> Schedule {
        if self.rank != root {
            return Schedule {
                size: self.block,
                input: Some(self.piece(0)),
                output: None,
                rounds: vec![Self::send(root, self.piece(0))],
            };
        }
        let from = (1..self.members).map(|step| self.rank_after(step));
        Schedule {
            size: self.members * self.block,
            input: Some(self.piece(root)),
            output: Some(self.pieces(0)),
            rounds: from.map(|from| Self::receive(from, self.piece(from))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    /// Runs an operation of members whose values are bytes, which are combined as digits are written: so that who
    /// combines them in another order, or one of them twice, is seen. What each member has at the end.
    fn run(kind: Kind, inputs: &[Vec<u8>], block: usize) -> Vec<Option<Vec<u8>>> {
        let of = |rank| schedule(kind, rank, inputs.len(), block).expect("little memory");
        carry_out(&(0..inputs.len()).map(of).collect::<Vec<_>>(), inputs)
    }

    /// Executes schedules as [`run`] does.
    fn carry_out(plans: &[Schedule], inputs: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let members = inputs.len();
        let mut memory: Vec<_> = plans.iter().map(|plan| vec![0u8; plan.size]).collect();
        for ((plan, memory), input) in plans.iter().zip(&mut memory).zip(inputs) {
            if let Some(Piece { at, len }) = plan.input {
                memory[at..at + len].copy_from_slice(&input[..len]);
            }
        }
        let mut mail: HashMap<(usize, usize), VecDeque<Vec<u8>>> = HashMap::new();
        // Of each member: the round, and whether it has sent.
        let mut state = vec![(0, false); members];
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for rank in 0..members {
                let Some(round) = plans[rank].rounds.get(state[rank].0) else { continue };
                if !std::mem::replace(&mut state[rank].1, true) {
                    moved = true;
                    if let Some((to, Piece { at, len })) = round.send {
                        assert_ne!(to, rank, "nobody sends to itself");
                        let bytes = memory[rank][at..at + len].to_vec();
                        mail.entry((rank, to)).or_default().push_back(bytes);
                    }
                }
                if let Some((from, Piece { at, len })) = round.receive {
                    let Some(bytes) = mail.entry((from, rank)).or_default().pop_front() else {
                        continue;
                    };
                    memory[rank][at..at + len].copy_from_slice(&bytes);
                }
                for local in &round.then {
                    let memory = &mut memory[rank];
                    match *local {
                        Local::Copy { from, to, len } => memory.copy_within(from..from + len, to),
                        Local::Fold { first, second, to, len } => {
                            for n in 0..len {
                                memory[to + n] = memory[first + n].wrapping_add(memory[second + n]);
                            }
                        }
                    }
                }
                state[rank] = (state[rank].0 + 1, false);
                moved = true;
            }
        }
        for (rank, (round, _)) in state.iter().enumerate() {
            assert_eq!(*round, plans[rank].rounds.len(), "of {members}: {rank} waits");
        }
        assert!(mail.values().all(VecDeque::is_empty), "of {members}: something is left");
        let ends = plans.iter().zip(&memory);
        ends.map(|(plan, memory)| {
            plan.output.map(|Piece { at, len }| memory[at..at + len].to_vec())
        })
        .collect()
    }

    /// Tries all numbers of members up to 17, with each of them as the root.
    #[test]
    fn every_member_has_what_it_should() {
        let block = 3;
        for members in 1..=17 {
            let byte = |rank: usize, n: usize| (rank * 37 + n * 5 + 1) as u8;
            let inputs: Vec<Vec<u8>> = (0..members)
                .map(|rank| (0..members * block).map(|n| byte(rank, n)).collect())
                .collect();
            let part = |rank: usize, n: usize| inputs[rank][n * block..(n + 1) * block].to_vec();
            let sum = |n: usize| -> Vec<u8> {
                let of = |at: usize| {
                    (0..members).fold(0u8, |sum, rank| sum.wrapping_add(byte(rank, n * block + at)))
                };
                (0..block).map(of).collect()
            };
            let all =
                |of: &dyn Fn(usize) -> Vec<u8>| (0..members).flat_map(of).collect::<Vec<u8>>();
            assert_eq!(run(Kind::Barrier, &inputs, 0), vec![None; members]);
            assert_eq!(run(Kind::AllReduce, &inputs, block), vec![Some(sum(0)); members]);
            let gathered = all(&|rank| part(rank, 0));
            assert_eq!(run(Kind::AllGather, &inputs, block), vec![Some(gathered.clone()); members]);
            let exchanged = run(Kind::AllToAll, &inputs, block);
            let scattered = run(Kind::ReduceScatter, &inputs, block);
            for rank in 0..members {
                assert_eq!(exchanged[rank], Some(all(&|from| part(from, rank))));
                assert_eq!(scattered[rank], Some(sum(rank)));
            }
            for root in 0..members {
                let only = |value: &Vec<u8>| -> Vec<Option<Vec<u8>>> {
                    (0..members).map(|rank| (rank == root).then(|| value.clone())).collect()
                };
                let others: Vec<_> =
                    (0..members).map(|rank| (rank != root).then(|| part(root, 0))).collect();
                assert_eq!(run(Kind::Broadcast { root }, &inputs, block), others);
                assert_eq!(run(Kind::Reduce { root }, &inputs, block), only(&sum(0)));
                assert_eq!(run(Kind::Gather { root }, &inputs, block), only(&gathered));
                let each: Vec<_> = (0..members).map(|rank| Some(part(root, rank))).collect();
                assert_eq!(run(Kind::Scatter { root }, &inputs, block), each);
            }
        }
    }

    /// Parts that are all full, that end with a shorter one, and of which some are empty.
    #[test]
    fn a_ring_reduces_vectors_of_every_length() {
        for members in 1..=9 {
            for block in [0, 1, 63, 64, 65, 200, 64 * members, 64 * members + 3, 1000] {
                let byte = |rank: usize, n: usize| (rank * 37 + n * 5 + 1) as u8;
                let input = |rank| (0..block).map(|n| byte(rank, n)).collect::<Vec<_>>();
                let inputs: Vec<_> = (0..members).map(input).collect();
                let sum = |n| (0..members).fold(0u8, |sum, rank| sum.wrapping_add(byte(rank, n)));
                let expected: Vec<u8> = (0..block).map(sum).collect();
                let of = |rank| Member { rank, members, block }.all_reduce_ring();
                let plans: Vec<_> = (0..members).map(of).collect();
                assert_eq!(carry_out(&plans, &inputs), vec![Some(expected); members], "{block}");
            }
        }
    }

    /// Counted from the schedules: what a member sends, and as much for each round as a round takes.
    #[test]
    fn the_all_reduce_that_takes_fewer_bytes_is_chosen() {
        let mut rings = 0;
        for members in 2..=40 {
            for block in (0..24).map(|power| 1usize << power) {
                let longest = |of: &dyn Fn(Member) -> Schedule| {
                    let bytes = |round: &Round| {
                        let len =
                            |way: Option<(usize, Piece)>| way.map_or(0, |(_, piece)| piece.len);
                        ROUND + len(round.send).max(len(round.receive))
                    };
                    let member = |rank| Member { rank, members, block };
                    let time = |rank| of(member(rank)).rounds.iter().map(bytes).sum::<usize>();
                    (0..members).map(time).max().expect("somebody")
                };
                let ring = longest(&|member| member.all_reduce_ring());
                let doubling = longest(&|member| member.all_reduce_doubling());
                let chosen = longest(&|member| member.all_reduce());
                assert_eq!(chosen, ring.min(doubling), "{members} members, {block} bytes");
                rings += usize::from(ring < doubling);
            }
        }
        assert!(rings > 100, "both are chosen: {rings}");
    }

    /// All members combine in the same order, so a sum of rounded numbers is the same at all of them.
    #[test]
    fn doubling_combines_in_one_order() {
        for members in 1..=17 {
            // What each member has, in the words of what was combined.
            let mut terms: Vec<String> = (0..members).map(|rank| rank.to_string()).collect();
            let plans: Vec<_> = (0..members)
                .map(|rank| schedule(Kind::AllReduce, rank, members, 1).expect("little memory"))
                .collect();
            let mut at = vec![0; members];
            // A round of two partners is one step: who waits for another is passed over.
            while at.iter().zip(&plans).any(|(at, plan)| *at < plan.rounds.len()) {
                for rank in 0..members {
                    let Some(round) = plans[rank].rounds.get(at[rank]) else { continue };
                    let partner = round.send.or(round.receive).expect("somebody").0;
                    let other = &plans[partner].rounds[at[partner]];
                    let meets = |of: Option<(usize, Piece)>| of.is_some_and(|(who, _)| who == rank);
                    if partner < rank || !(meets(other.send) || meets(other.receive)) {
                        continue;
                    }
                    let before = terms.clone();
                    for (me, you) in [(rank, partner), (partner, rank)] {
                        let mine = &plans[me].rounds[at[me]];
                        match (mine.receive, mine.then.first()) {
                            (None, _) => {}
                            (_, None) => terms[me] = before[you].clone(),
                            (_, Some(Local::Fold { first, .. })) => {
                                let pair = if *first == 0 { [me, you] } else { [you, me] };
                                terms[me] = format!("({}+{})", before[pair[0]], before[pair[1]]);
                            }
                            (_, Some(Local::Copy { .. })) => unreachable!("nothing is copied"),
                        }
                    }
                    (at[rank], at[partner]) = (at[rank] + 1, at[partner] + 1);
                }
            }
            assert!(terms.iter().all(|term| *term == terms[0]), "{members}: {terms:?}");
        }
    }

    #[test]
    fn what_does_not_fit_into_memory_is_refused() {
        assert_eq!(schedule(Kind::AllToAll, 0, 1 << 20, usize::MAX >> 20), None);
        assert!(schedule(Kind::Barrier, 5, 1 << 20, 0).is_some());
    }
}
