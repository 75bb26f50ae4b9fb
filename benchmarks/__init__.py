"""Benchmarks: ours against Java Kafka Streams, restore speed and memory, on a real broker."""
