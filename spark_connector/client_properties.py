"""The names of clients' properties, so that a misspelled one is an error and not ignored.

    unknown_property("fetch.max.byte") -> "is no property ...; did you mean 'kafka.fetch.max.bytes'?"

Those of Java's clients (consumer, producer, admin), which users have from Spark's own source and sink, and
those of librdkafka. One set of options often serves a source and a sink, so both accept all of them.
"""

from __future__ import annotations

import difflib
from typing import Final

_SHARED: Final = """
    bootstrap.servers client.id client.dns.lookup client.rack connections.max.idle.ms enable.metrics.push
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
    retry.backoff.max.ms retry.backoff.ms send.buffer.bytes security.protocol
    socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms
"""
_SECURITY: Final = """
    enable.ssl.certificate.verification
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.mechanism sasl.mechanisms sasl.password sasl.username
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.config sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret enable.sasl.oauthbearer.unsecure.jwt
    security.providers ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
    ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.engine.id ssl.engine.location
    ssl.key.location ssl.key.password ssl.key.pem ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol ssl.provider ssl.providers ssl.secure.random.implementation
    ssl.sigalgs.list ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type https.ca.location https.ca.pem
"""
_CONSUMER: Final = """
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs default.api.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.partition.eof exclude.internal.topics
    fetch.error.backoff.ms fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol
    group.protocol.type group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level
    key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages session.timeout.ms
    value.deserializer coordinator.query.interval.ms
"""
_PRODUCER: Final = """
    acks batch.num.messages batch.size buffer.memory compression.codec compression.gzip.level
    compression.level compression.lz4.level compression.type compression.zstd.level
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence
    key.serializer linger.ms max.block.ms max.in.flight max.in.flight.requests.per.connection
    max.request.size message.max.bytes message.send.max.retries message.timeout.ms
    metadata.max.idle.ms partitioner partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queuing.strategy request.required.acks sticky.partitioning.linger.ms
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
"""
_OTHERS: Final = """
    auto.include.jmx.reporter bootstrap.controllers config.providers metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms
    api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.family
    broker.address.ttl broker.version.fallback builtin.features debug enable.random.seed
    internal.termination.signal log.connection.close log.queue log.thread.name log_level
    message.copy.max.bytes metadata.broker.list plugin.library.paths receive.message.max.bytes
    reconnect.backoff.jitter.ms socket.blocking.max.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""
KNOWN: Final = frozenset(" ".join((_SHARED, _SECURITY, _CONSUMER, _PRODUCER, _OTHERS)).split())

_PASSED_ON: Final = ("sasl.oauthbearer.", "config.providers.")
"""Beginnings of names of which there are more with each release, or of people's own making."""


def unknown_property(name: str) -> str | None:
    """What is wrong with a property's name, if anything."""
    if name in KNOWN or name.startswith(_PASSED_ON):
        return None
    near = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"; did you mean 'kafka.{near[0]}'?" if near else ""
    return f"is no property of a Kafka client{hint}"
