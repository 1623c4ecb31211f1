//! SES return codes (table 3-19).

use super::code_points;

code_points! {
    /// Result of a request at the target (table 3-19).
    ReturnCode Vendor 0x30..=0x37 {
        /// The message layer has no result yet (the default response).
        Null = 0x00, "NULL";
        /// The request succeeded.
        Ok = 0x01, "OK";
        /// The request names another generation of the resource than the current one.
        BadGeneration = 0x02, "BAD_GENERATION";
        /// The resource that the request names is disabled.
        Disabled = 0x03, "DISABLED";
        /// The resource is disabled for the generation that the request names.
        DisabledGen = 0x04, "DISABLED_GEN";
        /// No receive at the target matches the message.
        NoMatch = 0x05, "NO_MATCH";
        /// The target does not support the opcode.
        UnsupportedOp = 0x06, "UNSUPPORTED_OP";
        /// The target does not support the size of the request.
        UnsupportedSize = 0x07, "UNSUPPORTED_SIZE";
        /// Address translation at the target failed: the address is invalid.
        AtInvalid = 0x08, "AT_INVALID";
        /// Address translation at the target failed: access is not permitted.
        AtPerm = 0x09, "AT_PERM";
        /// Address translation at the target failed: the translation service reported an error.
        AtAtsError = 0x0A, "AT_ATS_ERROR";
        /// Address translation at the target failed: there is no translation.
        AtNoTrans = 0x0B, "AT_NO_TRANS";
        /// Address translation at the target failed: the address is out of range.
        AtOutOfRange = 0x0C, "AT_OUT_OF_RANGE";
        /// The target's host memory is poisoned (an uncorrectable memory error).
        HostPoisoned = 0x0D, "HOST_POISONED";
        /// The target's host could not complete the memory access.
        HostUnsuccessCmpl = 0x0E, "HOST_UNSUCCESS_CMPL";
        /// The target does not support the atomic operation.
        AmoUnsupportedOp = 0x0F, "AMO_UNSUPPORTED_OP";
        /// The target does not support the data type of the atomic operation.
        AmoUnsupportedDt = 0x10, "AMO_UNSUPPORTED_DT";
        /// The target does not support the size of the atomic operation.
        AmoUnsupportedSize = 0x11, "AMO_UNSUPPORTED_SIZE";
        /// The address of an atomic operation is not aligned.
        AmoUnaligned = 0x12, "AMO_UNALIGNED";
        /// A floating-point atomic operation gave no number (NaN).
        AmoFpNan = 0x13, "AMO_FP_NAN";
        /// A floating-point atomic operation underflowed.
        AmoFpUnderflow = 0x14, "AMO_FP_UNDERFLOW";
        /// A floating-point atomic operation overflowed.
        AmoFpOverflow = 0x15, "AMO_FP_OVERFLOW";
        /// A floating-point atomic operation gave an inexact result.
        AmoFpInexact = 0x16, "AMO_FP_INEXACT";
        /// The initiator has no permission for the access.
        PermViolation = 0x17, "PERM_VIOLATION";
        /// The operation is not allowed on the resource.
        OpViolation = 0x18, "OP_VIOLATION";
        /// The target has no resource with this index.
        BadIndex = 0x19, "BAD_INDEX";
        /// The target endpoint has no process with this number (PIDonFEP).
        BadPid = 0x1A, "BAD_PID";
        /// The target has no job with this JobID.
        BadJobId = 0x1B, "BAD_JOB_ID";
        /// The target has no memory region with this key.
        BadMkey = 0x1C, "BAD_MKEY";
        /// The address lies outside of the memory region.
        BadAddr = 0x1D, "BAD_ADDR";
        /// The target cancelled the message.
        Cancelled = 0x1E, "CANCELLED";
        /// The target cannot deliver the message.
        Undeliverable = 0x1F, "UNDELIVERABLE";
        /// An uncorrectable error occurred at the target.
        Uncor = 0x20, "UNCOR";
        /// An uncorrectable but transient error occurred at the target.
        UncorTrnsnt = 0x21, "UNCOR_TRNSNT";
        /// The message is longer than the buffer that the target posted for it.
        TooLong = 0x22, "TOO_LONG";
        /// The initiator itself reported an error in the message.
        InitiatorErr = 0x23, "INITIATOR_ERR";
        /// The target dropped the message.
        Dropped = 0x24, "DROPPED";
        /// A code in a further header, which no table describes.
        Extended = 0x3E, "EXTENDED";
    }
}
