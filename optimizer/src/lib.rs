//! The StitchCUDA domain: tasks, strategies, agents, prompts, rubric, reward and model providers.
