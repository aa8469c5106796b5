"""The controller: sessions of brokers, commands proposed, applied and answered."""
