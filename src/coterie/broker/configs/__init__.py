"""Settings of the broker, configs of topics, and the rules of DescribeConfigs and AlterConfigs."""
