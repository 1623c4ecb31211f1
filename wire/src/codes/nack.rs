//! NACK codes (table 3-58) and the reaction of an initiator to each (reference provider).

use super::code_points;

code_points! {
    /// Reason of a NACK (table 3-58). 0x03 (TRIMMED_ACK) is reserved since 1.0.3, so the parser
    /// refuses it.
    NackCode {
        /// A switch cut off the packet's payload.
        Trimmed = 0x01, "TRIMMED";
        /// The last switch cut the payload: the receiver's own link is the bottleneck.
        TrimmedLastHop = 0x02, "TRIMMED_LASTHOP";
        /// No packet delivery context is free at the target.
        NoPdcAvail = 0x04, "NO_PDC_AVAIL";
        /// No congestion-control context is free at the target.
        NoCccAvail = 0x05, "NO_CCC_AVAIL";
        /// The target has no memory to track the PSN.
        NoBitmap = 0x06, "NO_BITMAP";
        /// The target has no buffer for the packet.
        NoPktBuffer = 0x07, "NO_PKT_BUFFER";
        /// The target has no memory to keep a guaranteed response.
        NoGtdDelAvail = 0x08, "NO_GTD_DEL_AVAIL";
        /// The target has no memory for another message: back-pressure of the message layer (SES).
        NoSesMsgAvail = 0x09, "NO_SES_MSG_AVAIL";
        /// The target lacks another resource than those above.
        NoResource = 0x0A, "NO_RESOURCE";
        /// The PSN lies outside of the target's receive window.
        PsnOorWindow = 0x0B, "PSN_OOR_WINDOW";
        /// A packet before this one is missing in a context of ordered delivery (ROD).
        RodOoo = 0x0D, "ROD_OOO";
        /// The target knows no context with the packet's DPDCID.
        InvDpdcid = 0x0E, "INV_DPDCID";
        /// The packet's header contradicts the context that it names.
        PdcHdrMismatch = 0x0F, "PDC_HDR_MISMATCH";
        /// The target is closing the context.
        Closing = 0x10, "CLOSING";
        /// The target is closing the context after an error.
        ClosingInErr = 0x11, "CLOSING_IN_ERR";
        /// An acknowledgement was requested for a packet that did not arrive.
        PktNotRcvd = 0x12, "PKT_NOT_RCVD";
        /// The target lost a response that it had to keep.
        GtdRespUnavail = 0x13, "GTD_RESP_UNAVAIL";
        /// An acknowledgement was requested whose response carries data.
        AckWithData = 0x14, "ACK_WITH_DATA";
        /// The flag SYN is set in a packet that cannot open a context.
        InvalidSyn = 0x15, "INVALID_SYN";
        /// A RUD packet names a ROD context, or a ROD packet a RUD context.
        PdcModeMismatch = 0x16, "PDC_MODE_MISMATCH";
        /// The initiator must start again at the PSN in the payload.
        NewStartPsn = 0x17, "NEW_START_PSN";
        /// The packet arrived, and the target is still processing it.
        RcvdSesProcg = 0x18, "RCVD_SES_PROCG";
        /// An unexpected event, after which the context must be closed.
        UnexpEvent = 0x19, "UNEXP_EVENT";
        /// The receiver infers from later packets that this one was lost.
        RcvrInferLoss = 0x1A, "RCVR_INFER_LOSS";
        /// Experimental code for a NACK that reports no error.
        ExpNormal = 0xFD, "EXP_NORMAL";
        /// Experimental code for an error of the packet.
        ExpErr = 0xFE, "EXP_ERR";
        /// Experimental code for an error of the context.
        ExpFatal = 0xFF, "EXP_FATAL";
    }
}

/// Reaction of the sender whose packet was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NackAction {
    /// Send the refused packet again.
    Retransmit,
    /// Close the context with an error.
    Close,
    /// Renumber from the PSN in the NACK's payload and send again.
    Restart,
    /// Do nothing: the retransmission timer recovers.
    Ignore,
}

impl NackCode {
    /// Returns the reaction of the reference provider to this code (`uet_pds_nack_action`).
    #[must_use]
    pub const fn action(self) -> NackAction {
        match self {
            Self::Trimmed
            | Self::TrimmedLastHop
            | Self::NoPdcAvail
            | Self::NoCccAvail
            | Self::NoBitmap
            | Self::NoPktBuffer
            | Self::NoGtdDelAvail
            | Self::NoSesMsgAvail
            | Self::NoResource
            | Self::PsnOorWindow
            | Self::RodOoo
            | Self::PktNotRcvd
            | Self::AckWithData
            | Self::RcvrInferLoss
            | Self::ExpNormal
            | Self::ExpErr => NackAction::Retransmit,
            Self::InvDpdcid
            | Self::PdcHdrMismatch
            | Self::Closing
            | Self::ClosingInErr
            | Self::GtdRespUnavail
            | Self::InvalidSyn
            | Self::PdcModeMismatch
            | Self::UnexpEvent
            | Self::ExpFatal => NackAction::Close,
            Self::NewStartPsn => NackAction::Restart,
            Self::RcvdSesProcg => NackAction::Ignore,
        }
    }

    /// Returns whether only a target that already holds the context sends this code, so that its NACK
    /// must name the target's context id. A target without a context may send the other codes
    /// (SPDCID 0). PDC_HDR_MISMATCH and PDC_MODE_MISMATCH are among these: they refuse a SYN that
    /// contradicts another context, and the refused one has no id at the target.
    #[must_use]
    pub const fn needs_context(self) -> bool {
        matches!(
            self,
            Self::PsnOorWindow
                | Self::RodOoo
                | Self::Closing
                | Self::ClosingInErr
                | Self::PktNotRcvd
                | Self::GtdRespUnavail
                | Self::AckWithData
                | Self::RcvdSesProcg
                | Self::RcvrInferLoss
        )
    }
}
