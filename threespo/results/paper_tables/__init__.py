"""The paper's tables with ours beside them: what stands in them, and how they are written for a report and for a paper."""
