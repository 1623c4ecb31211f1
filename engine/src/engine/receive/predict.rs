//! Header prediction: the headers of an ordinary message are compared with those of the message
//! before on the same context. This replaces only the parsing. The packet takes all other steps like
//! any other, so nothing that is unusual elsewhere has to be known here.

use super::PacketReceiver;
use super::parse::DataPacket;
use crate::memory::Memory;
use crate::reliability::{Delivery, NamedContext};
use crate::wire::{MessageTemplate, Packet};

impl<M: Memory> PacketReceiver<'_, M> {
    /// Returns the packet as the parser would, and its context, if its headers are those that its
    /// context predicts, and it came from the address of the context's peer.
    #[inline]
    pub(super) fn predict<'p>(&mut self, bytes: &'p [u8]) -> Option<(Packet<'p>, NamedContext)> {
        let number = MessageTemplate::context_number(bytes)?;
        let context = self.engine.pdcs.find_context(number)?;
        let template = self.engine.contexts.get(context.id.into())?.template.as_deref()?;
        let packet = template.read(bytes)?;
        self.is_from(context).then_some((packet, context))
    }

    /// Keeps the headers of a new packet as those that predict the next, if it is an ordinary
    /// message.
    pub(super) fn keep_template(&mut self, delivery: &Delivery, data: &DataPacket<'_>) {
        let Some(template) = MessageTemplate::new(data.headers, data.pds, data.ses) else { return };
        if let Some(context) = self.engine.contexts.get_mut(delivery.id().into()) {
            match &mut context.template {
                Some(kept) => **kept = template,
                none => *none = Some(Box::new(template)),
            }
        }
    }
}
