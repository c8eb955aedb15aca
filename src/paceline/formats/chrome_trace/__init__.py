"""Chrome-trace JSON, the timeline format of several profilers."""
