//! Prints the commands that let endpoints' packets through a firewall.

use super::finding::Finding;

/// UDP ports that are proposed for the endpoints of a host with at most 64 ranks.
const PROPOSED: &str = "47930-47993";

/// Returns the commands for the ports of FI_SQUALL_PORT, or for a range that could be set.
pub(super) fn lines(port: Option<&str>) -> Finding {
    let fixed = port.filter(|text| *text != "0");
    let ports = fixed.unwrap_or(PROPOSED);
    let let_in = format!(
        "nft add rule inet filter input udp dport {ports} accept\n\
         firewall-cmd --permanent --add-port={ports}/udp && firewall-cmd --reload"
    );
    match fixed {
        Some(_) => Finding::note(
            format!(
                "endpoints listen at UDP port {ports}, one each; if there is a firewall, let it in"
            ),
            let_in,
        ),
        None => Finding::note(
            "endpoints listen at UDP port 4793 and, where that is taken, at any; if there is a firewall, choose a \
             range, one port for each endpoint of a host",
            format!("export FI_SQUALL_PORT={ports}\n{let_in}"),
        ),
    }
}
