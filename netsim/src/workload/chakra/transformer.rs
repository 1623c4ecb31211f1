//! Traces of a training step of a transformer, as Megatron-LM runs it: tensor parallel within a
//! group of ranks, a pipeline of stages with one forward and one backward pass in turn (Narayanan et
//! al., SC 2021), and data parallel for the rest.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::{fs, io};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::messages::{Attribute, GlobalMetadata, Node, VERSION, Value, write};
use super::{EXTENSION, Groups};

/// Bytes of a number of the type bf16.
const BF16: u64 = 2;
/// Bytes of memory that an optimizer step reads and writes for each parameter, and the rate of the
/// memory, bytes per second.
const OPTIMIZER_BYTES: f64 = 18.0;
const MEMORY_RATE: f64 = 3e12;

/// A training step of a transformer. The defaults are those of a model with 70 billion parameters
/// (Touvron et al., "Llama 2", 2023) on accelerators that reach 400 Tflop/s.
#[derive(Args, Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct Training {
    /// Layers of the model (default 80).
    #[arg(long, default_value_t = Self::default().layers, hide_default_value = true)]
    pub layers: u32,
    /// Width of a layer (default 8192).
    #[arg(long, default_value_t = Self::default().hidden, hide_default_value = true)]
    pub hidden: u64,
    /// Width of keys and of values (default 1024).
    #[arg(long, default_value_t = Self::default().key_value, hide_default_value = true)]
    pub key_value: u64,
    /// Width of the feed-forward part of a layer, which has three matrices (default 28672).
    #[arg(long, default_value_t = Self::default().feed_forward, hide_default_value = true)]
    pub feed_forward: u64,
    /// Vocabulary size, tokens (default 32000).
    #[arg(long, default_value_t = Self::default().vocabulary, hide_default_value = true)]
    pub vocabulary: u64,
    /// Tokens of a sequence; a microbatch is one sequence (default 4096).
    #[arg(long, default_value_t = Self::default().sequence, hide_default_value = true)]
    pub sequence: u64,
    /// Microbatches of a step (default 8).
    #[arg(long, default_value_t = Self::default().microbatches, hide_default_value = true)]
    pub microbatches: u32,
    /// Tensor-parallel degree: ranks that share each layer (default 8).
    #[arg(long, default_value_t = Self::default().tensor, hide_default_value = true)]
    pub tensor: u32,
    /// Stages of the pipeline (default 4).
    #[arg(long, default_value_t = Self::default().pipeline, hide_default_value = true)]
    pub pipeline: u32,
    /// Data-parallel degree: copies of the model, each with data of its own (default 2).
    #[arg(long, default_value_t = Self::default().data, hide_default_value = true)]
    pub data: u32,
    /// Largest gradient bucket, bytes (default 100 MiB).
    #[arg(long, default_value_t = Self::default().bucket, hide_default_value = true)]
    pub bucket: u64,
    /// Rate at which an accelerator computes, Tflop/s (default 400).
    #[arg(long, default_value_t = Self::default().tflops, hide_default_value = true)]
    pub tflops: f64,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            layers: 80,
            hidden: 8192,
            key_value: 1024,
            feed_forward: 28_672,
            vocabulary: 32_000,
            sequence: 4096,
            microbatches: 8,
            tensor: 8,
            pipeline: 4,
            data: 2,
            bucket: 100 << 20,
            tflops: 400.0,
        }
    }
}

/// Bytes that the rank that sends most sends in a step, with rings for collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainingBytes {
    /// Sums of the tensor-parallel group.
    pub tensor: u64,
    /// Activations and their gradients, to the stages beside its own.
    pub pipeline: u64,
    /// Gradients of the data-parallel group.
    pub data: u64,
}

impl Training {
    /// Returns the number of ranks. The ranks of a tensor-parallel group follow each other, then the
    /// copies of the model, then the stages.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.tensor * self.data * self.pipeline
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Returns the first one that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("layers", self.layers.into(), 1 << 16),
            ("hidden", self.hidden, 1 << 24),
            ("key_value", self.key_value, 1 << 24),
            ("feed_forward", self.feed_forward, 1 << 24),
            ("vocabulary", self.vocabulary, 1 << 24),
            ("sequence", self.sequence, 1 << 24),
            ("microbatches", self.microbatches.into(), 1 << 16),
            ("tensor", self.tensor.into(), 1 << 10),
            ("pipeline", self.pipeline.into(), 1 << 10),
            ("data", self.data.into(), 1 << 10),
            ("bucket", self.bucket, 1 << 40),
        ];
        if let Some((name, given, most)) =
            counts.iter().find(|(_, given, most)| !(1..=*most).contains(given))
        {
            return Err(format!("{name} is {given}, expected 1 to {most}"));
        }
        if !self.layers.is_multiple_of(self.pipeline) {
            let (layers, stages) = (self.layers, self.pipeline);
            return Err(format!("{layers} layers in {stages} stages, expected as many in each"));
        }
        if !(self.tflops > 0.0 && self.tflops < 1e9) {
            return Err(format!("tflops is {}, expected more than 0", self.tflops));
        }
        Ok(())
    }

    /// Returns the parameters of the attention and of the feed-forward part of a layer.
    pub(super) const fn layer_parameters(&self) -> [u64; 2] {
        let attention = 2 * self.hidden * (self.hidden + self.key_value);
        [attention, 3 * self.hidden * self.feed_forward]
    }

    /// Returns the number of parameters of the model.
    #[must_use]
    pub const fn parameters(&self) -> u64 {
        let [attention, feed_forward] = self.layer_parameters();
        self.layers as u64 * (attention + feed_forward) + 2 * self.vocabulary * self.hidden
    }

    /// Returns the bytes of the activations between two layers.
    const fn activations(&self) -> u64 {
        self.sequence * self.hidden * BF16
    }

    /// Returns the bytes that a rank sends in a step.
    #[must_use]
    pub fn bytes(&self) -> TrainingBytes {
        let ring = |bytes: u64, ranks: u32| 2 * bytes * u64::from(ranks - 1) / u64::from(ranks);
        let passes = u64::from(self.layers / self.pipeline) * u64::from(self.microbatches);
        let neighbours = u64::from(self.pipeline.min(3) - 1) * u64::from(self.microbatches);
        let [attention, feed_forward] = self.layer_parameters();
        let layers = u64::from(self.layers / self.pipeline) * (attention + feed_forward);
        let embeddings = self.vocabulary * self.hidden;
        let gradients = (layers + embeddings) * BF16 / u64::from(self.tensor);
        TrainingBytes {
            tensor: 4 * passes * ring(self.activations(), self.tensor),
            pipeline: neighbours * self.activations() / u64::from(self.tensor),
            data: ring(gradients, self.data),
        }
    }

    /// Returns the process groups: those of tensor-parallel, then those of data-parallel ranks.
    pub(super) fn groups(&self) -> Groups {
        let (tensor, data) = (self.tensor, self.data);
        let mut groups = Groups::new();
        for first in (0..self.ranks()).step_by(tensor as usize) {
            groups.insert((groups.len() + 1).to_string(), (first..first + tensor).collect());
        }
        for stage in 0..self.pipeline {
            for place in 0..tensor {
                let first = stage * data * tensor + place;
                let members = (0..data).map(|copy| first + copy * tensor);
                groups.insert((groups.len() + 1).to_string(), members.collect());
            }
        }
        groups
    }

    /// Writes the traces of all ranks into a folder, as `NAME.%d.et`, and their groups as
    /// `NAME.groups.json`.
    ///
    /// # Errors
    /// Returns the number that is out of range, or the error of the operating system.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<()> {
        self.check().map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        fs::create_dir_all(folder)?;
        for rank in 0..self.ranks() {
            let file = folder.join(format!("{name}.{rank}.{EXTENSION}"));
            let mut to = BufWriter::new(fs::File::create(file)?);
            self.write_rank(rank, &mut to)?;
            to.flush()?;
        }
        let groups = serde_json::to_string(&self.groups())?;
        fs::write(folder.join(format!("{name}.groups.json")), groups)
    }

    /// Writes the trace of a rank.
    pub(super) fn write_rank(&self, rank: u32, to: &mut dyn Write) -> io::Result<()> {
        write(to, &GlobalMetadata { version: VERSION.to_owned(), attr: Vec::new() })?;
        let mut trace = RankTrace::new(self, rank);
        trace.step();
        trace.nodes.iter().try_for_each(|node| write(to, node))
    }
}

/// The trace of a rank that is being made.
struct RankTrace<'a> {
    training: &'a Training,
    rank: u32,
    /// Stage of the rank, and its groups.
    stage: u32,
    tensor_group: String,
    data_group: String,
    nodes: Vec<Node>,
    /// Node behind which the next pass begins.
    last: Option<u64>,
    /// Bytes of gradients that no bucket has yet, and the reductions of buckets.
    gradients: u64,
    reductions: Vec<u64>,
}

impl<'a> RankTrace<'a> {
    fn new(training: &'a Training, rank: u32) -> Self {
        let stage = rank / (training.tensor * training.data);
        let copies = training.data * training.pipeline;
        Self {
            training,
            rank,
            stage,
            tensor_group: (1 + rank / training.tensor).to_string(),
            data_group: (1 + copies + stage * training.tensor + rank % training.tensor).to_string(),
            nodes: Vec::new(),
            last: None,
            gradients: 0,
            reductions: Vec::new(),
        }
    }

    /// Adds a node behind others. Returns its number.
    fn node(&mut self, name: &str, kind: i32, after: &[u64], attr: Vec<Attribute>) -> u64 {
        let id = self.nodes.len() as u64;
        self.nodes.push(Node {
            id,
            name: name.to_owned(),
            kind,
            data_deps: after.to_vec(),
            attr,
            ..Node::default()
        });
        id
    }

    /// Adds a computation behind the last node and others.
    fn compute(&mut self, name: &str, seconds: f64, after: &[u64]) {
        let after: Vec<u64> = self.last.iter().chain(after).copied().collect();
        let on_host = Attribute::new("is_cpu_op", Value::Bool(false));
        let id = self.node(name, 4, &after, vec![on_host]);
        self.nodes[id as usize].duration_micros = (seconds * 1e6).round() as u64;
        self.last = Some(id);
    }

    /// Adds an all-reduce of a group behind the last node. Returns its number.
    fn all_reduce(&mut self, name: &str, group: String, bytes: u64) -> u64 {
        let attr = vec![
            Attribute::new("is_cpu_op", Value::Bool(false)),
            Attribute::new("comm_type", Value::Int64(0)),
            Attribute::new("comm_size", Value::Uint64(bytes)),
            Attribute::new("pg_name", Value::String(group)),
        ];
        let after: Vec<u64> = self.last.iter().copied().collect();
        self.node(name, 7, &after, attr)
    }

    /// Returns the rank of a neighbouring stage, if there is one.
    fn neighbour(&self, next: bool) -> Option<u32> {
        let each = self.training.tensor * self.training.data;
        match next {
            true => Some(self.rank + each).filter(|_| self.stage + 1 < self.training.pipeline),
            false => self.rank.checked_sub(each),
        }
    }

    /// Adds a message of activations, or of their gradients, to or from a neighbouring stage if
    /// there is one. Returns the receive.
    fn message(&mut self, sends: bool, next: bool, tag: u32) -> Option<u64> {
        let peer = self.neighbour(next)?;
        let bytes = self.training.activations() / u64::from(self.training.tensor);
        let role = if sends { "comm_dst" } else { "comm_src" };
        let attr = vec![
            Attribute::new("is_cpu_op", Value::Bool(false)),
            Attribute::new("comm_size", Value::Uint64(bytes.max(1))),
            Attribute::new(role, Value::Uint32(peer)),
            Attribute::new("comm_tag", Value::Uint32(tag)),
        ];
        if sends {
            let after: Vec<u64> = self.last.iter().copied().collect();
            self.node("send", 5, &after, attr);
            return None;
        }
        // A receive is posted at the beginning, so that its message may be early.
        Some(self.node("receive", 6, &[], attr))
    }

    /// Returns the seconds of the forward pass of attention, feed-forward part and vocabulary.
    fn seconds(&self) -> [f64; 3] {
        let training = self.training;
        let [attention, feed_forward] = training.layer_parameters();
        let tokens = training.sequence as f64;
        let rate = training.tflops * 1e12 * f64::from(training.tensor);
        // Half of the pairs of tokens have a score, which takes two products of the hidden width.
        let scores = 2.0 * tokens * tokens * training.hidden as f64;
        let vocabulary = (training.vocabulary * training.hidden) as f64;
        [
            (2.0 * tokens * attention as f64 + scores) / rate,
            2.0 * tokens * feed_forward as f64 / rate,
            2.0 * tokens * vocabulary / rate,
        ]
    }

    const fn is_last_stage(&self) -> bool {
        self.stage + 1 == self.training.pipeline
    }

    fn forward(&mut self, microbatch: u32) {
        let [attention, feed_forward, vocabulary] = self.seconds();
        let mut after: Vec<u64> = self.message(false, false, 2 * microbatch).into_iter().collect();
        for _ in 0..self.training.layers / self.training.pipeline {
            for (name, seconds) in [("attention", attention), ("feed-forward", feed_forward)] {
                self.compute(name, seconds, &after);
                after.clear();
                self.sum(name);
            }
        }
        if self.is_last_stage() {
            self.compute("vocabulary", vocabulary, &[]);
        }
        self.message(true, true, 2 * microbatch);
    }

    /// Adds the sum of a tensor-parallel group.
    fn sum(&mut self, name: &str) {
        if self.training.tensor > 1 {
            let (group, bytes) = (self.tensor_group.clone(), self.training.activations());
            let sum = self.all_reduce(&format!("{name} sum"), group, bytes);
            self.last = Some(sum);
        }
    }

    fn backward(&mut self, microbatch: u32) {
        let [attention, feed_forward, vocabulary] = self.seconds();
        let is_last = microbatch + 1 == self.training.microbatches;
        let [of_attention, of_feed_forward] = self.training.layer_parameters();
        let of_vocabulary = self.training.vocabulary * self.training.hidden;
        let mut after: Vec<u64> =
            self.message(false, true, 2 * microbatch + 1).into_iter().collect();
        if self.is_last_stage() {
            self.compute("vocabulary gradient", 2.0 * vocabulary, &[]);
            self.reduce(is_last, of_vocabulary);
        }
        for _ in 0..self.training.layers / self.training.pipeline {
            for (name, seconds, parameters) in [
                ("feed-forward gradient", feed_forward, of_feed_forward),
                ("attention gradient", attention, of_attention),
            ] {
                self.compute(name, 2.0 * seconds, &after);
                after.clear();
                self.reduce(is_last, parameters);
                self.sum(name);
            }
        }
        if self.stage == 0 {
            self.reduce(is_last, of_vocabulary);
        }
        self.message(true, false, 2 * microbatch + 1);
    }

    /// Adds gradients to the bucket, and the reductions of buckets that are full.
    fn reduce(&mut self, is_last: bool, parameters: u64) {
        if !is_last || self.training.data < 2 {
            return;
        }
        self.gradients += parameters * BF16 / u64::from(self.training.tensor);
        while self.gradients >= self.training.bucket {
            self.gradients -= self.training.bucket;
            self.reduce_bucket(self.training.bucket);
        }
    }

    fn reduce_bucket(&mut self, bytes: u64) {
        let reduction = self.all_reduce("gradient reduction", self.data_group.clone(), bytes);
        self.reductions.push(reduction);
    }

    fn step(&mut self) {
        let training = self.training;
        let warm = (training.pipeline - 1 - self.stage).min(training.microbatches);
        (0..warm).for_each(|microbatch| self.forward(microbatch));
        for microbatch in warm..training.microbatches {
            self.forward(microbatch);
            self.backward(microbatch - warm);
        }
        for microbatch in training.microbatches - warm..training.microbatches {
            self.backward(microbatch);
        }
        if self.gradients > 0 {
            let bytes = std::mem::take(&mut self.gradients);
            self.reduce_bucket(bytes);
        }
        let layers = u64::from(training.layers / training.pipeline);
        let parameters = layers * training.layer_parameters().iter().sum::<u64>();
        let bytes = OPTIMIZER_BYTES * parameters as f64 / f64::from(training.tensor);
        let reductions = std::mem::take(&mut self.reductions);
        self.compute("optimizer", bytes / MEMORY_RATE, &reductions);
    }
}
