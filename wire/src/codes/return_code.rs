//! SES return codes (table 3-19).

use super::code_points;

code_points! {
    /// Result of a request at the target (table 3-19).
    ReturnCode Vendor 0x30..=0x37 {
        /// No result (the default response).
        Null = 0x00, "NULL";
        /// The request succeeded.
        Ok = 0x01, "OK";
        /// The request names another generation of the resource than the current one.
        BadGeneration = 0x02, "BAD_GENERATION";
        /// The resource is disabled.
        Disabled = 0x03, "DISABLED";
        /// The resource is disabled for this generation.
        DisabledGen = 0x04, "DISABLED_GEN";
        /// No receive matches.
        NoMatch = 0x05, "NO_MATCH";
        /// Opcode not supported.
        UnsupportedOp = 0x06, "UNSUPPORTED_OP";
        /// Size not supported.
        UnsupportedSize = 0x07, "UNSUPPORTED_SIZE";
        /// Address translation: invalid.
        AtInvalid = 0x08, "AT_INVALID";
        /// Address translation: permission.
        AtPerm = 0x09, "AT_PERM";
        /// Address translation: service error.
        AtAtsError = 0x0A, "AT_ATS_ERROR";
        /// Address translation: none.
        AtNoTrans = 0x0B, "AT_NO_TRANS";
        /// Address translation: out of range.
        AtOutOfRange = 0x0C, "AT_OUT_OF_RANGE";
        /// Host memory is poisoned.
        HostPoisoned = 0x0D, "HOST_POISONED";
        /// The host could not complete the access.
        HostUnsuccessCmpl = 0x0E, "HOST_UNSUCCESS_CMPL";
        /// Atomic operation not supported.
        AmoUnsupportedOp = 0x0F, "AMO_UNSUPPORTED_OP";
        /// Atomic data type not supported.
        AmoUnsupportedDt = 0x10, "AMO_UNSUPPORTED_DT";
        /// Atomic size not supported.
        AmoUnsupportedSize = 0x11, "AMO_UNSUPPORTED_SIZE";
        /// Atomic on an unaligned address.
        AmoUnaligned = 0x12, "AMO_UNALIGNED";
        /// Floating-point atomic: not a number.
        AmoFpNan = 0x13, "AMO_FP_NAN";
        /// Floating-point atomic: underflow.
        AmoFpUnderflow = 0x14, "AMO_FP_UNDERFLOW";
        /// Floating-point atomic: overflow.
        AmoFpOverflow = 0x15, "AMO_FP_OVERFLOW";
        /// Floating-point atomic: inexact.
        AmoFpInexact = 0x16, "AMO_FP_INEXACT";
        /// Permission violation.
        PermViolation = 0x17, "PERM_VIOLATION";
        /// Operation not allowed.
        OpViolation = 0x18, "OP_VIOLATION";
        /// No such resource index.
        BadIndex = 0x19, "BAD_INDEX";
        /// No such PIDonFEP.
        BadPid = 0x1A, "BAD_PID";
        /// No such JobID.
        BadJobId = 0x1B, "BAD_JOB_ID";
        /// No such memory key.
        BadMkey = 0x1C, "BAD_MKEY";
        /// Address outside the memory region.
        BadAddr = 0x1D, "BAD_ADDR";
        /// The target cancelled the message.
        Cancelled = 0x1E, "CANCELLED";
        /// The message cannot be delivered.
        Undeliverable = 0x1F, "UNDELIVERABLE";
        /// Uncorrectable error.
        Uncor = 0x20, "UNCOR";
        /// Uncorrectable, transient error.
        UncorTrnsnt = 0x21, "UNCOR_TRNSNT";
        /// The message is longer than the buffer.
        TooLong = 0x22, "TOO_LONG";
        /// The initiator reported an error.
        InitiatorErr = 0x23, "INITIATOR_ERR";
        /// The target dropped the message.
        Dropped = 0x24, "DROPPED";
        /// A code in a further header, which no table describes.
        Extended = 0x3E, "EXTENDED";
    }
}
