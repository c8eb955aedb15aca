"""Components of a cluster (card, link, NIC, switch cut, network): which smallest set of them explains what is slow."""
