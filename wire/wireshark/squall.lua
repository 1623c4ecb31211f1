-- Shows Ultra Ethernet packets (UE 1.0) over UDP in Wireshark and tshark, as squall sends and reads them.
--
--   wireshark -X lua_script:squall.lua capture.pcap
--   tshark -X lua_script:squall.lua -r capture.pcap -Y 'squall.type == "NACK"'
--
-- Or put it into the folder of personal Lua plugins (Help, About, Folders). Packets of port 4793 are taken, and on other ports
-- those that look like one: an endpoint may have any port. The fields are those of the crate `wire`, whose
-- documentation says where the public sources disagree; its tests hold the names here beside its own.

local squall = Proto("squall", "Ultra Ethernet over UDP (squall)")

-- PdsType
local TYPES = {
  [1] = "TSS",
  [2] = "RUD_REQ",
  [3] = "ROD_REQ",
  [4] = "RUDI_REQ",
  [5] = "RUDI_RESP",
  [6] = "UUD_REQ",
  [7] = "ACK",
  [8] = "ACK_CC",
  [9] = "ACK_CCX",
  [10] = "NACK",
  [11] = "CP",
  [12] = "NACK_CCX",
  [13] = "RUD_CC_REQ",
  [14] = "ROD_CC_REQ",
  [30] = "RATES",
}

-- NextHeader
local NEXT = {
  [0] = "NONE",
  [1] = "REQUEST_SMALL",
  [2] = "REQUEST_MEDIUM",
  [3] = "REQUEST_STD",
  [4] = "RESPONSE",
  [5] = "RESPONSE_DATA",
  [6] = "RESPONSE_DATA_SMALL",
}

-- ControlKind
local CONTROLS = {
  [0] = "NOOP",
  [1] = "ACK_REQUEST",
  [2] = "CLEAR_COMMAND",
  [3] = "CLEAR_REQUEST",
  [4] = "CLOSE_COMMAND",
  [5] = "CLOSE_REQUEST",
  [6] = "PROBE",
  [7] = "CREDIT",
  [8] = "CREDIT_REQUEST",
  [9] = "NEGOTIATION",
}

-- NackCode
local NACKS = {
  [1] = "TRIMMED",
  [2] = "TRIMMED_LASTHOP",
  [4] = "NO_PDC_AVAIL",
  [5] = "NO_CCC_AVAIL",
  [6] = "NO_BITMAP",
  [7] = "NO_PKT_BUFFER",
  [8] = "NO_GTD_DEL_AVAIL",
  [9] = "NO_SES_MSG_AVAIL",
  [10] = "NO_RESOURCE",
  [11] = "PSN_OOR_WINDOW",
  [13] = "ROD_OOO",
  [14] = "INV_DPDCID",
  [15] = "PDC_HDR_MISMATCH",
  [16] = "CLOSING",
  [17] = "CLOSING_IN_ERR",
  [18] = "PKT_NOT_RCVD",
  [19] = "GTD_RESP_UNAVAIL",
  [20] = "ACK_WITH_DATA",
  [21] = "INVALID_SYN",
  [22] = "PDC_MODE_MISMATCH",
  [23] = "NEW_START_PSN",
  [24] = "RCVD_SES_PROCG",
  [25] = "UNEXP_EVENT",
  [26] = "RCVR_INFER_LOSS",
  [253] = "EXP_NORMAL",
  [254] = "EXP_ERR",
  [255] = "EXP_FATAL",
}

-- Opcode
local OPCODES = {
  [0] = "NO_OP",
  [1] = "WRITE",
  [2] = "READ",
  [3] = "ATOMIC",
  [4] = "FETCHING_ATOMIC",
  [5] = "SEND",
  [6] = "RENDEZVOUS_SEND",
  [7] = "DATAGRAM_SEND",
  [8] = "DEFERRABLE_SEND",
  [9] = "TAGGED_SEND",
  [10] = "RENDEZVOUS_TSEND",
  [11] = "DEFERRABLE_TSEND",
  [12] = "DEFERRABLE_RTR",
  [13] = "TSEND_ATOMIC",
  [14] = "TSEND_FETCH_ATOMIC",
  [15] = "MSG_ERROR",
  [63] = "EXTENDED",
}

-- ResponseOpcode
local RESPONSES = {
  [0] = "DEFAULT",
  [1] = "RESPONSE",
  [2] = "RESPONSE_W_DATA",
  [3] = "NO_RESPONSE",
}

-- List
local LISTS = {
  [0] = "EXPECTED",
  [1] = "OVERFLOW",
  [2] = "VENDOR2",
  [3] = "VENDOR3",
}

-- ReturnCode
local RETURNS = {
  [0] = "NULL",
  [1] = "OK",
  [2] = "BAD_GENERATION",
  [3] = "DISABLED",
  [4] = "DISABLED_GEN",
  [5] = "NO_MATCH",
  [6] = "UNSUPPORTED_OP",
  [7] = "UNSUPPORTED_SIZE",
  [8] = "AT_INVALID",
  [9] = "AT_PERM",
  [10] = "AT_ATS_ERROR",
  [11] = "AT_NO_TRANS",
  [12] = "AT_OUT_OF_RANGE",
  [13] = "HOST_POISONED",
  [14] = "HOST_UNSUCCESS_CMPL",
  [15] = "AMO_UNSUPPORTED_OP",
  [16] = "AMO_UNSUPPORTED_DT",
  [17] = "AMO_UNSUPPORTED_SIZE",
  [18] = "AMO_UNALIGNED",
  [19] = "AMO_FP_NAN",
  [20] = "AMO_FP_UNDERFLOW",
  [21] = "AMO_FP_OVERFLOW",
  [22] = "AMO_FP_INEXACT",
  [23] = "PERM_VIOLATION",
  [24] = "OP_VIOLATION",
  [25] = "BAD_INDEX",
  [26] = "BAD_PID",
  [27] = "BAD_JOB_ID",
  [28] = "BAD_MKEY",
  [29] = "BAD_ADDR",
  [30] = "CANCELLED",
  [31] = "UNDELIVERABLE",
  [32] = "UNCOR",
  [33] = "UNCOR_TRNSNT",
  [34] = "TOO_LONG",
  [35] = "INITIATOR_ERR",
  [36] = "DROPPED",
  [62] = "EXTENDED",
}

-- Stage
local STAGES = {
  [1] = "HELLO",
  [2] = "CHALLENGE",
  [3] = "CONFIRM",
  [4] = "WELCOME",
  [5] = "REFUSE",
}

-- Reason
local REASONS = {
  [0] = "NONE",
  [1] = "VERSION",
  [2] = "JOB",
  [3] = "STALE",
  [4] = "CROWDED",
  [5] = "KEY",
  [6] = "UNLISTED",
  [7] = "ENCRYPTION",
  [8] = "INSTANCE",
}

local UDP_PORT = 4793
-- Private numbers of this wire.
local TELEMETRY, RECORD = 31, 28
local RATES, ENTRY = 30, 20
local STAGES_OF_RATES = { [0] = "asks", [1] = "back", [2] = "leaves" }
local LINK_STATES = { [0] = "not", [1] = "limited elsewhere", [2] = "limited here" }
local CC_TYPES = { [0] = "NSCC", [1] = "CREDIT", [14] = "DART" }
local REQUESTS = { [0] = "nothing", [1] = "clear", [2] = "close" }

local fields = {}

-- Declares a field once; `f.name` is it.
local f = setmetatable({}, {
  __index = function(_, name)
    return fields[name]
  end,
})

local function field(name, kind, title, ...)
  fields[name] = ProtoField[kind]("squall." .. name, title, ...)
end

field("type", "string", "Type")
field("type_number", "uint8", "Type's number", base.DEC, nil, 0xf8)
field("next", "uint16", "Next header", base.DEC, NEXT, 0x0780)
field("control", "uint16", "Control", base.DEC, CONTROLS, 0x0780)
field("retx", "bool", "Sent again", 8, nil, 0x10)
field("ar", "bool", "Acknowledgement requested", 8, nil, 0x08)
field("syn", "bool", "May open a context", 8, nil, 0x04)
field("marked", "bool", "Marked Congestion Experienced", 8, nil, 0x20)
field("probe", "bool", "Answers a probe", 8, nil, 0x08)
field("rod", "bool", "Ordered context (ROD)", 8, nil, 0x20)
field("req", "uint8", "The target asks for", base.DEC, REQUESTS, 0x06)
field("clear_psn_offset", "int16", "CLEAR_PSN - PSN")
field("psn", "uint32", "PSN")
field("spdcid", "uint16", "Source context")
field("dpdcid", "uint16", "Destination context")
field("psn_offset", "uint16", "PSN - start PSN", base.DEC, nil, 0x0fff)
field("ccc_id", "uint8", "Congestion control context")
field("credit_target", "uint24", "Credit wanted")
field("ack_psn_offset", "int16", "ACK_PSN - CACK_PSN")
field("probe_opaque", "uint16", "Probe")
field("cack", "uint32", "CACK_PSN")
field("ack_psn", "uint32", "ACK_PSN")
field("cc_type", "uint8", "State of", base.DEC, CC_TYPES, 0xf0)
field("mpr", "uint8", "Maximum PSN range (of 128)")
field("sack_psn_offset", "int16", "SACK base - CACK_PSN")
field("sack", "uint64", "SACK bitmap", base.HEX)
field("service_time", "uint16", "Service time (of 128 ns)")
field("restore_cwnd", "bool", "Restore the window", 8, nil, 0x80)
field("penalty", "uint8", "Window penalty", base.DEC, nil, 0x7f)
field("rcvd_bytes", "uint24", "Bytes received (of 256)")
field("credit", "uint24", "Credit")
field("ooo", "uint16", "Packets out of order")
field("state", "bytes", "State")
field("nack", "uint8", "Reason", base.HEX, NACKS)
field("vendor_code", "uint8", "Vendor's reason", base.HEX)
field("expected_psn", "uint32", "Start PSN of the next context")
field("payload", "uint32", "Payload")
field("opcode", "uint8", "Operation", base.HEX, OPCODES, 0x3f)
field("version", "uint8", "Version", base.DEC, nil, 0xc0)
field("dc", "bool", "Delivery complete", 8, nil, 0x20)
field("ie", "bool", "Initiator error", 8, nil, 0x10)
field("rel", "bool", "Process relative to the job", 8, nil, 0x08)
field("hd", "bool", "Header data", 8, nil, 0x04)
field("eom", "bool", "End of message", 8, nil, 0x02)
field("som", "bool", "Start of message", 8, nil, 0x01)
field("message_id", "uint16", "Message")
field("ri_generation", "uint8", "Generation")
field("job", "uint24", "Job")
field("pid_on_fep", "uint16", "Process", base.DEC, nil, 0x0fff)
field("resource", "uint16", "Resource", base.DEC, nil, 0x0fff)
field("buffer_offset", "uint64", "Offset in the buffer")
field("initiator", "uint32", "Initiator", base.HEX)
field("initiator_port", "uint16", "Initiator's port")
field("match_bits", "uint64", "Tag or key", base.HEX)
field("header_data", "uint64", "Header data", base.HEX)
field("payload_length", "uint32", "Payload's length", base.DEC, nil, 0x3fff)
field("message_offset", "uint32", "Offset in the message")
field("request_length", "uint32", "Length of the message")
field("list", "uint8", "List", base.DEC, LISTS, 0xc0)
field("response", "uint8", "Response", base.DEC, RESPONSES, 0x3f)
field("return_code", "uint8", "Return code", base.HEX, RETURNS, 0x3f)
field("modified_length", "uint32", "Bytes moved")
field("read_id", "uint16", "Message of the read")
field("request_psn", "uint32", "PSN of the request")
field("packet_id", "uint32", "Packet")
field("records", "uint8", "Records of telemetry")
field("queue_name", "uint32", "Queue", base.HEX)
field("at", "uint64", "Left it at (ns)")
field("tx_bytes", "uint64", "Bytes sent by its port")
field("queue", "uint32", "Bytes left behind")
field("rate_kbps", "uint32", "Rate (kb/s)")
field("stage", "uint8", "Stage", base.DEC, STAGES_OF_RATES, 0x07)
field("entries", "uint8", "Links that wrote")
field("weight", "uint16", "Connections that share the part")
field("flow", "uint32", "Flow", base.HEX)
field("path", "uint16", "Path")
field("serial", "uint16", "Which of the flow's")
field("demand", "float", "Demand (b/s)")
field("epoch", "uint32", "Epoch of the start")
field("epoch_weight", "uint16", "Connections when it began")
field("let_through", "uint16", "Speculative packets let through")
field("link", "uint32", "Link", base.HEX)
field("bottleneck", "float", "Has for a flow that it limits (b/s)")
field("allocated", "float", "Allocated (b/s)")
field("sweep", "uint16", "Sweep")
field("link_state", "uint8", "Counts the flow", base.DEC, LINK_STATES, 0xfc)
field("ignore", "bool", "Others are to ignore it", 8, nil, 0x02)
field("fresh", "bool", "Written on this trip", 8, nil, 0x01)
field("data", "bytes", "Data")
field("tlv", "bytes", "Introduction")

local list = {}
for _, declared in pairs(fields) do
  list[#list + 1] = declared
end
squall.fields = list

local short = ProtoExpert.new("squall.short", "Shorter than its headers", expert.group.MALFORMED, expert.severity.ERROR)
local unknown = ProtoExpert.new("squall.unknown", "No such number", expert.group.MALFORMED, expert.severity.ERROR)
local trimmed = ProtoExpert.new("squall.trimmed", "Its payload was cut off", expert.group.SEQUENCE, expert.severity.NOTE)
squall.experts = { short, unknown, trimmed }

-- Reads fields one after the other: each row is a field, where it is, and how long.
local function add(tree, buf, rows)
  for _, row in ipairs(rows) do
    tree:add(f[row[1]], buf(row[2], row[3]))
  end
end

local function lacks(buf, tree, length)
  if buf:len() >= length then
    return false
  end
  tree:add_proto_expert_info(short)
  return true
end

-- Switches leave the delivery header of a packet and some of what follows.
local function is_cut(buf, tree, length)
  if buf:len() >= length then
    return false
  end
  tree:add_proto_expert_info(trimmed)
  return true
end

-- SES headers: how many bytes each is, and what it says in a line.
local SES = {}

SES[3] = function(buf, tree)
  if is_cut(buf, tree, 44) then
    return 0, " trimmed"
  end
  add(tree, buf, {
    { "opcode", 0, 1 }, { "version", 1, 1 }, { "dc", 1, 1 }, { "ie", 1, 1 }, { "rel", 1, 1 }, { "hd", 1, 1 }, { "eom", 1, 1 },
    { "som", 1, 1 }, { "message_id", 2, 2 }, { "ri_generation", 4, 1 }, { "job", 5, 3 }, { "pid_on_fep", 8, 2 },
    { "resource", 10, 2 }, { "buffer_offset", 12, 8 }, { "initiator", 20, 4 }, { "initiator_port", 22, 2 }, { "match_bits", 24, 8 },
  })
  local opcode, som = buf(0, 1):bitfield(2, 6), buf(1, 1):bitfield(7, 1) == 1
  if som then
    add(tree, buf, { { "header_data", 32, 8 } })
  else
    add(tree, buf, { { "payload_length", 32, 4 }, { "message_offset", 36, 4 } })
  end
  add(tree, buf, { { "request_length", 40, 4 } })
  local name = OPCODES[opcode]
  if not name and (opcode < 0x30 or opcode > 0x3e) then
    tree:add_proto_expert_info(unknown)
  end
  local where = som and "" or string.format(" at %d", buf(36, 4):uint())
  return 44, string.format(" %s %d of %d B%s", name or "VENDOR", buf(2, 2):uint(), buf(40, 4):uint(), where)
end

local function respond(buf, tree)
  add(tree, buf, { { "list", 0, 1 }, { "response", 0, 1 }, { "version", 1, 1 }, { "return_code", 1, 1 }, { "job", 5, 3 } })
  return " " .. (RETURNS[buf(1, 1):bitfield(2, 6)] or "VENDOR")
end

SES[4] = function(buf, tree)
  if is_cut(buf, tree, 12) then
    return 0, " trimmed"
  end
  local said = respond(buf, tree)
  add(tree, buf, { { "message_id", 2, 2 }, { "ri_generation", 4, 1 }, { "modified_length", 8, 4 } })
  return 12, said
end

SES[5] = function(buf, tree)
  if is_cut(buf, tree, 20) then
    return 0, " trimmed"
  end
  local said = respond(buf, tree)
  add(tree, buf, { { "message_id", 2, 2 }, { "read_id", 8, 2 } })
  tree:add(f.payload_length, buf(8, 4))
  add(tree, buf, { { "modified_length", 12, 4 }, { "message_offset", 16, 4 } })
  return 20, string.format("%s of message %d at %d", said, buf(8, 2):uint(), buf(16, 4):uint())
end

SES[6] = function(buf, tree)
  if is_cut(buf, tree, 12) then
    return 0, " trimmed"
  end
  local said = respond(buf, tree)
  add(tree, buf, { { "request_psn", 8, 4 } })
  return 12, said
end

-- What follows a delivery header.
local function ses(buf, tree, next)
  if next == 0 then
    return ""
  end
  local read, said, length = SES[next], "", 0
  local sub = tree:add(squall, buf(), "Semantic sublayer: " .. (NEXT[next] or "unknown"))
  if read then
    length, said = read(buf, sub)
  elseif not NEXT[next] then
    sub:add_proto_expert_info(unknown)
  end
  if length < buf:len() then
    sub:add(f.data, buf(length))
  end
  return said
end

local function contexts(buf, tree, syn)
  tree:add(f.spdcid, buf(8, 2))
  tree:add(syn and f.psn_offset or f.dpdcid, buf(10, 2))
end

local function request(buf, tree, kind, next, flags)
  local length = kind >= 13 and 16 or 12
  if lacks(buf, tree, length) then
    return ""
  end
  local syn = bit.band(flags, 4) ~= 0
  add(tree, buf, { { "retx", 1, 1 }, { "ar", 1, 1 }, { "syn", 1, 1 }, { "clear_psn_offset", 2, 2 }, { "psn", 4, 4 } })
  contexts(buf, tree, syn)
  if kind >= 13 then
    add(tree, buf, { { "ccc_id", 12, 1 }, { "credit_target", 13, 3 } })
  end
  local said = string.format(" PSN %d", buf(4, 4):uint())
  if bit.band(flags, 0x10) ~= 0 then
    said = said .. " again"
  end
  if syn then
    said = said .. " SYN"
  end
  -- A trimmed packet has no more.
  return buf:len() > length and said .. ses(buf(length):tvb(), tree, next) or said
end

local function ack(buf, tree, kind, next, flags)
  local epsn = kind == 7 and bit.band(flags, 0x40) ~= 0
  local length = epsn and 16 or ({ [7] = 12, [8] = 32, [9] = 40 })[kind]
  if lacks(buf, tree, length) then
    return ""
  end
  local probe = bit.band(flags, 8) ~= 0
  add(tree, buf, { { "marked", 1, 1 }, { "retx", 1, 1 }, { "probe", 1, 1 }, { "req", 1, 1 } })
  tree:add(probe and f.probe_opaque or f.ack_psn_offset, buf(2, 2))
  tree:add(f.cack, buf(4, 4))
  if not probe then
    local psn = bit.tobit(buf(4, 4):uint() + buf(2, 2):int())
    tree:add(f.ack_psn, buf(2, 2), psn < 0 and psn + 4294967296 or psn):set_generated()
  end
  contexts(buf, tree, false)
  local said = string.format(" up to %d", buf(4, 4):uint())
  if epsn then
    tree:add(f.expected_psn, buf(12, 4))
    said = said .. string.format(", next context from %d", buf(12, 4):uint())
  end
  if kind > 7 then
    local cc = buf(12, 1):bitfield(0, 4)
    add(tree, buf, { { "cc_type", 12, 1 }, { "mpr", 13, 1 }, { "sack_psn_offset", 14, 2 }, { "sack", 16, 8 } })
    if kind == 8 and cc == 0 then
      add(tree, buf, {
        { "service_time", 24, 2 }, { "restore_cwnd", 26, 1 }, { "penalty", 26, 1 }, { "rcvd_bytes", 27, 3 }, { "ooo", 30, 2 },
      })
    elseif kind == 8 then
      add(tree, buf, { { "credit", 24, 3 }, { "ooo", 30, 2 } })
    else
      tree:add(f.state, buf(24, 16))
    end
    if buf(16, 8):uint64() ~= UInt64(0) then
      said = said .. " SACK"
    end
  end
  if bit.band(flags, 0x20) ~= 0 then
    said = said .. " CE"
  end
  return buf:len() > length and said .. ses(buf(length):tvb(), tree, next) or said
end

local function nack(buf, tree, kind)
  local length = kind == 12 and 32 or 16
  if lacks(buf, tree, length) then
    return ""
  end
  add(tree, buf, { { "marked", 1, 1 }, { "retx", 1, 1 }, { "nack", 2, 1 }, { "vendor_code", 3, 1 }, { "psn", 4, 4 } })
  contexts(buf, tree, false)
  tree:add(f.payload, buf(12, 4))
  if kind == 12 then
    tree:add(f.state, buf(16, 16))
  end
  local name = NACKS[buf(2, 1):uint()]
  if not name then
    tree:add_proto_expert_info(unknown)
  end
  return string.format(" PSN %d %s", buf(4, 4):uint(), name or "?")
end

local function control(buf, tree, next, flags)
  if lacks(buf, tree, 16) then
    return ""
  end
  tree:add(f.control, buf(0, 2))
  add(tree, buf, { { "rod", 1, 1 }, { "retx", 1, 1 }, { "ar", 1, 1 }, { "syn", 1, 1 }, { "probe_opaque", 2, 2 }, { "psn", 4, 4 } })
  contexts(buf, tree, bit.band(flags, 4) ~= 0)
  tree:add(f.payload, buf(12, 4))
  local name = CONTROLS[next]
  if not name then
    tree:add_proto_expert_info(unknown)
  end
  local said = " " .. (name or "?")
  if next == 9 and buf:len() > 18 then
    tree:add(f.tlv, buf(16))
    local stage = buf:len() > 21 and STAGES[buf(18, 1):uint()]
    said = said .. (stage and " " .. stage or "")
  end
  return said
end

local deliver

-- Telemetry stands before the packet that it is about.
local function telemetry(buf, tree)
  if lacks(buf, tree, 4) then
    return "", ""
  end
  local count = buf(1, 1):uint()
  tree:add(f.records, buf(1, 1))
  if lacks(buf, tree, 4 + count * RECORD) then
    return "", ""
  end
  for record = 0, count - 1 do
    local at = 4 + record * RECORD
    local sub = tree:add(squall, buf(at, RECORD), "Record " .. record + 1)
    add(sub, buf, {
      { "queue_name", at, 4 }, { "at", at + 4, 8 }, { "tx_bytes", at + 12, 8 }, { "queue", at + 20, 4 }, { "rate_kbps", at + 24, 4 },
    })
  end
  local name, said = deliver(buf(4 + count * RECORD):tvb(), tree)
  return name, said .. string.format(" +%d records", count)
end

-- What asks links for a rate.
local function rates(buf, tree)
  if lacks(buf, tree, 32) then
    return ""
  end
  add(tree, buf, {
    { "stage", 0, 1 }, { "entries", 1, 1 }, { "weight", 2, 2 }, { "initiator", 4, 4 }, { "initiator_port", 6, 2 }, { "flow", 8, 4 },
    { "path", 12, 2 }, { "serial", 14, 2 }, { "demand", 16, 4 }, { "epoch", 20, 4 }, { "epoch_weight", 24, 2 },
    { "let_through", 26, 2 },
  })
  local stage, count = STAGES_OF_RATES[buf(0, 1):bitfield(5, 3)], buf(1, 1):uint()
  if not stage then
    tree:add_proto_expert_info(unknown)
  end
  if lacks(buf, tree, 32 + count * ENTRY) then
    return ""
  end
  for entry = 0, count - 1 do
    local at = 32 + entry * ENTRY
    local sub = tree:add(squall, buf(at, ENTRY), "Entry " .. entry + 1)
    add(sub, buf, {
      { "link", at, 4 }, { "bottleneck", at + 4, 4 }, { "allocated", at + 8, 4 }, { "weight", at + 12, 2 }, { "sweep", at + 14, 2 },
      { "link_state", at + 16, 1 }, { "ignore", at + 16, 1 }, { "fresh", at + 16, 1 },
    })
  end
  return string.format(" %s, flow 0x%x #%d, %d entries", stage or "?", buf(8, 4):uint(), buf(14, 2):uint(), count)
end

-- The delivery header and what follows it: the type, and the rest of a line.
deliver = function(buf, tree)
  if lacks(buf, tree, 2) then
    return "?", ""
  end
  local kind, next, flags = buf(0, 2):bitfield(0, 5), buf(0, 2):bitfield(5, 4), buf(1, 1):bitfield(1, 7)
  tree:add(f.type_number, buf(0, 1))
  if kind == TELEMETRY then
    return telemetry(buf, tree)
  end
  local name, said = TYPES[kind], ""
  if not name then
    tree:add_proto_expert_info(unknown)
    return "?", ""
  end
  tree:add(f.type, buf(0, 1), name)
  if kind == RATES then
    return name, rates(buf, tree)
  end
  if kind ~= 11 then
    tree:add(f.next, buf(0, 2))
  end
  if kind == 2 or kind == 3 or kind == 13 or kind == 14 then
    said = request(buf, tree, kind, next, flags)
  elseif kind >= 7 and kind <= 9 then
    said = ack(buf, tree, kind, next, flags)
  elseif kind == 10 or kind == 12 then
    said = nack(buf, tree, kind)
  elseif kind == 11 then
    said = control(buf, tree, next, flags)
  elseif kind == 4 or kind == 5 then
    if not lacks(buf, tree, 8) then
      tree:add(f.packet_id, buf(4, 4))
      said = buf:len() > 8 and ses(buf(8):tvb(), tree, next) or ""
    end
  elseif kind == 6 then
    said = buf:len() > 4 and ses(buf(4):tvb(), tree, next) or ""
  end
  return name, said
end

function squall.dissector(buf, packet, root)
  packet.cols.protocol = "SQUALL"
  local tree = root:add(squall, buf())
  local name, said = deliver(buf, tree)
  packet.cols.info = name .. said
  tree:append_text(", " .. name .. said)
  return buf:len()
end

-- On any port: a known type, a next header that goes with it, and the length that this makes.
local LEAST = { [2] = 12, [3] = 12, [7] = 12, [8] = 32, [9] = 40, [10] = 16, [11] = 16, [12] = 32, [13] = 16, [14] = 16, [30] = 32, [31] = 16 }

local function looks_like_one(buf, packet, root)
  if buf:len() < 12 then
    return false
  end
  local kind, next = buf(0, 2):bitfield(0, 5), buf(0, 2):bitfield(5, 4)
  local least = LEAST[kind]
  local follows = kind == 11 and CONTROLS[next] or kind == TELEMETRY or (kind ~= 11 and NEXT[next])
  if kind == RATES then
    follows = buf:len() == 32 + buf(1, 1):uint() * ENTRY
  end
  if not least or buf:len() < least or not follows then
    return false
  end
  squall.dissector(buf, packet, root)
  return true
end

DissectorTable.get("udp.port"):add(UDP_PORT, squall)
squall:register_heuristic("udp", looks_like_one)
