//! Names of the values of hints in libfabric's headers, for log messages.

use crate::abi::flags::{self, order};

/// The bits of a flag field and their names.
type Bits = &'static [(u64, &'static str)];

const ORDERS: Bits = &[
    (order::RAR, "FI_ORDER_RAR"),
    (order::RAW, "FI_ORDER_RAW"),
    (order::RAS, "FI_ORDER_RAS"),
    (order::WAR, "FI_ORDER_WAR"),
    (order::WAW, "FI_ORDER_WAW"),
    (order::WAS, "FI_ORDER_WAS"),
    (order::SAR, "FI_ORDER_SAR"),
    (order::SAW, "FI_ORDER_SAW"),
    (order::SAS, "FI_ORDER_SAS"),
    (order::RMA_RAR, "FI_ORDER_RMA_RAR"),
    (order::RMA_RAW, "FI_ORDER_RMA_RAW"),
    (order::RMA_WAR, "FI_ORDER_RMA_WAR"),
    (order::RMA_WAW, "FI_ORDER_RMA_WAW"),
    (order::ATOMIC_RAR, "FI_ORDER_ATOMIC_RAR"),
    (order::ATOMIC_RAW, "FI_ORDER_ATOMIC_RAW"),
    (order::ATOMIC_WAR, "FI_ORDER_ATOMIC_WAR"),
    (order::ATOMIC_WAW, "FI_ORDER_ATOMIC_WAW"),
];

/// Returns the values and names of the enumeration that a field of the hints holds.
fn numbers(field: &str) -> &'static [(u32, &'static str)] {
    match field {
        "ep_attr->type" => {
            &[(0, "FI_EP_UNSPEC"), (1, "FI_EP_MSG"), (2, "FI_EP_DGRAM"), (3, "FI_EP_RDM")]
        }
        "addr_format" => &[
            (0, "FI_FORMAT_UNSPEC"),
            (1, "FI_SOCKADDR"),
            (2, "FI_SOCKADDR_IN"),
            (3, "FI_SOCKADDR_IN6"),
            (4, "FI_SOCKADDR_IB"),
            (5, "FI_ADDR_PSMX"),
            (6, "FI_ADDR_GNI"),
            (7, "FI_ADDR_BGQ"),
            (8, "FI_ADDR_MLX"),
            (9, "FI_ADDR_STR"),
            (10, "FI_ADDR_PSMX2"),
            (11, "FI_ADDR_IB_UD"),
            (12, "FI_ADDR_EFA"),
            (13, "FI_ADDR_PSMX3"),
            (14, "FI_ADDR_OPX"),
            (15, "FI_ADDR_CXI"),
            (16, "FI_ADDR_UCX"),
            (17, "FI_SOCKADDR_IP"),
        ],
        "domain_attr->threading" => &[
            (0, "FI_THREAD_UNSPEC"),
            (1, "FI_THREAD_SAFE"),
            (2, "FI_THREAD_FID"),
            (3, "FI_THREAD_DOMAIN"),
            (4, "FI_THREAD_COMPLETION"),
            (5, "FI_THREAD_ENDPOINT"),
        ],
        "domain_attr->control_progress" | "domain_attr->data_progress" => &[
            (0, "FI_PROGRESS_UNSPEC"),
            (1, "FI_PROGRESS_AUTO"),
            (2, "FI_PROGRESS_MANUAL"),
            (3, "FI_PROGRESS_CONTROL_UNIFIED"),
        ],
        "domain_attr->resource_mgmt" => {
            &[(0, "FI_RM_UNSPEC"), (1, "FI_RM_DISABLED"), (2, "FI_RM_ENABLED")]
        }
        "domain_attr->av_type" => &[(0, "FI_AV_UNSPEC"), (1, "FI_AV_MAP"), (2, "FI_AV_TABLE")],
        _ => &[],
    }
}

/// Returns the names of the bits in a value, such as `FI_MSG|FI_TAGGED`; bits without a name are numbers.
pub(super) fn bits(field: &str, value: u64) -> String {
    let known = if field.ends_with("order") { ORDERS } else { flags::NAMES };
    let mut left = value;
    let mut words = Vec::new();
    for (bit, name) in known {
        // Some names stand for the same bit: the first is the one for capabilities.
        if left & bit != 0 {
            words.push((*name).to_owned());
            left &= !bit;
        }
    }
    if left != 0 || words.is_empty() {
        words.push(format!("{left:#x}"));
    }
    words.join("|")
}

/// Returns the name of a value of an enumeration, or its number if it has no name.
pub(super) fn number(field: &str, value: u32) -> String {
    let name = numbers(field).iter().find(|(number, _)| *number == value);
    name.map_or_else(|| value.to_string(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::limits;

    #[test]
    fn hints_are_told_as_they_are_written() {
        assert_eq!(number("ep_attr->type", 1), "FI_EP_MSG");
        assert_eq!(number("ep_attr->type", 99), "99");
        assert_eq!(number("ep_attr->protocol", 3), "3");
        assert_eq!(bits("caps", flags::MSG | flags::ATOMIC), "FI_MSG|FI_ATOMIC");
        assert_eq!(bits("caps", flags::HMEM | 1 << 62), "FI_HMEM|0x4000000000000000");
        assert_eq!(
            bits("tx_attr->msg_order", order::RAW | order::SAS),
            "FI_ORDER_RAW|FI_ORDER_SAS"
        );
        assert_eq!(bits("tx_attr->comp_order", 0), "0x0");
    }

    #[test]
    fn everything_that_is_offered_has_a_name() {
        for caps in
            [limits::CAPS, limits::TX_OP_FLAGS, limits::RX_OP_FLAGS, flags::HMEM | flags::PEER]
        {
            let said = bits("caps", caps);
            assert!(!said.contains("0x"), "{said}");
        }
        let said = bits("rx_attr->msg_order", crate::abi::order::ALL);
        assert!(!said.contains("0x"), "{said}");
    }
}
