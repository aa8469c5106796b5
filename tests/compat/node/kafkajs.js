// What kafkajs does with a Kafka, one story per run: `node kafkajs.js STORY BOOTSTRAP NAME`.
//
// NAME is the topic, the group and the transactional id of the run. A story ends with status 1 and a
// sentence at the first thing that is not as Apache Kafka has it; what another client is to look at is
// printed as JSON.
'use strict'

const assert = require('node:assert/strict')
const { AssignerProtocol, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const PATIENCE_MS = 60_000
const READER = { heartbeatInterval: 100, maxWaitTimeInMs: 100 } // it ends with its last fetch

const [story, bootstrap, name] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const admin = kafka.admin()

async function eventually(what, condition) {
  const deadline = Date.now() + PATIENCE_MS
  while (!(await condition())) {
    assert(Date.now() < deadline, `waited in vain: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function createTopic(partitions) {
  return admin.createTopics({ topics: [{ topic: name, numPartitions: partitions, replicationFactor: 3 }] })
}

async function withProducer(options, use) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

function fill(partitions, perPartition) {
  const places = Array.from({ length: partitions * perPartition }, (_, n) => [n % partitions, Math.floor(n / partitions)])
  const messages = places.map(([partition, n]) => ({ partition, value: `${partition}/${n}` }))
  return withProducer({ idempotent: true }, (producer) => producer.send({ topic: name, acks: -1, messages }))
}

// A member that notes what it reads and what it is given; it commits where `commit` is called.
async function join(groupId) {
  const consumer = kafka.consumer({ groupId, ...READER })
  const member = { found: [], partitions: [] }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.partitions = payload.memberAssignment[name] || []
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [name], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.found.push({ partition, ...message })
    },
  })
  member.commit = (partition, offset) => consumer.commitOffsets([{ topic: name, partition, offset }])
  member.leave = () => consumer.disconnect()
  return member
}

// Read so many messages with a group that nobody else is in.
async function read(count) {
  const reader = await join(`${name}-reader-${count}`)
  await eventually(`${count} messages`, () => reader.found.length >= count)
  await reader.leave()
  assert.equal(reader.found.length, count)
  return reader.found
}

const text = (message) => (message.value === null ? null : message.value.toString())

const stories = {
  // Keyed messages with the codecs that it has, read back. Result: key -> partition.
  async produce() {
    await createTopic(3)
    const sent = new Map()
    for (const codec of ['None', 'GZIP']) {
      const messages = Array.from({ length: 20 }, (_, n) => ({
        key: `${codec.toLowerCase()}-${n}`,
        value: `value ${n} of ${codec}, value ${n} of ${codec}`,
        timestamp: String(1000 + n),
        headers: { n: String(n), twice: ['a', 'b'] },
      }))
      messages.forEach((message) => sent.set(message.key, message))
      await withProducer({ idempotent: true }, (producer) =>
        producer.send({ topic: name, acks: -1, compression: CompressionTypes[codec], messages })
      )
    }
    await withProducer({}, (producer) =>
      producer.send({ topic: name, acks: 1, messages: [{ key: 'gone', value: null }, { value: 'free' }] })
    )
    const places = {}
    for (const message of await read(sent.size + 2)) {
      if (message.key === null) {
        assert.equal(text(message), 'free')
      } else if (message.key.toString() === 'gone') {
        assert.equal(message.value, null)
      } else {
        const wanted = sent.get(message.key.toString())
        places[wanted.key] = message.partition
        assert.equal(text(message), wanted.value)
        assert.equal(message.timestamp, wanted.timestamp)
        assert.equal(message.headers.n.toString(), wanted.headers.n)
        assert.deepEqual(message.headers.twice.map(String), ['a', 'b'])
      }
    }
    return places
  },

  // What its admin client asks of a cluster. Result: the topic's configs.
  async administer() {
    const topics = [{ topic: name, numPartitions: 2, replicationFactor: 3, configEntries: [{ name: 'retention.ms', value: '4321' }] }]
    assert.equal(await admin.createTopics({ topics }), true)
    assert.equal(await admin.createTopics({ topics }), false) // it is there
    await assert.rejects(
      admin.createTopics({ validateOnly: true, topics: [{ topic: `${name}-dry`, replicationFactor: 99 }] }),
      (error) => error.errors[0].type === 'INVALID_REPLICATION_FACTOR'
    )
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] })
    const [described] = (await admin.fetchTopicMetadata({ topics: [name] })).topics
    assert.equal(described.partitions.length, 3)
    for (const partition of described.partitions) assert.equal(partition.isr.length, 3)
    const cluster = await admin.describeCluster()
    assert.equal(cluster.brokers.length, 3)

    await fill(3, 4)
    await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '2' }] })
    const offsets = await admin.fetchTopicOffsets(name)
    const first = offsets.find(({ partition }) => partition === 0)
    assert.deepEqual([first.low, first.high], ['2', '4'])
    const later = await admin.fetchTopicOffsetsByTimestamp(name, Date.now() + PATIENCE_MS)
    assert.deepEqual(later.map(({ offset }) => offset), ['4', '4', '4'])

    const resource = { type: ConfigResourceTypes.TOPIC, name }
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ ...resource, configEntries: [{ name: 'cleanup.policy', value: 'delete,compact' }] }],
    })
    await assert.rejects(
      admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'segment.bytes', value: '-5' }] }] }),
      (error) => error.type === 'INVALID_CONFIG'
    )
    const { resources } = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] })
    assert.deepEqual((await admin.listPartitionReassignments({ topics: [{ topic: name, partitions: [0] }] })).topics, [])
    await admin.deleteTopics({ topics: [name] })
    await eventually('the topic is gone', async () => !(await admin.listTopics()).includes(name))
    return Object.fromEntries(resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]))
  },

  // Two members share, commit, and go on where they stood; then what the admin client sees of the group.
  async group() {
    await createTopic(4)
    await fill(4, 5)
    const first = await join(name)
    await eventually('all is read', () => first.found.length === 20)
    for (const partition of [0, 1, 2, 3]) await first.commit(partition, '5')
    const second = await join(name)
    await eventually('two and two', () => first.partitions.length === 2 && second.partitions.length === 2)
    const [described] = (await admin.describeGroups([name])).groups
    assert.deepEqual([described.state, described.protocol, described.members.length], ['Stable', 'RoundRobinAssigner', 2])
    const assigned = described.members.flatMap(
      ({ memberAssignment }) => AssignerProtocol.MemberAssignment.decode(memberAssignment).assignment[name]
    )
    assert.deepEqual(assigned.sort(), [0, 1, 2, 3])
    assert((await admin.listGroups()).groups.some(({ groupId }) => groupId === name))
    await assert.rejects(admin.deleteGroups([name]), (error) => error.groups[0].error.type === 'NON_EMPTY_GROUP')

    await fill(4, 1)
    const both = () => [...first.found.slice(20), ...second.found]
    await eventually('what came is read once', () => both().length >= 4)
    assert.deepEqual(both().map(({ offset }) => offset), ['5', '5', '5', '5'])
    await second.leave()
    await eventually('all four again', () => first.partitions.length === 4)
    await first.leave()
    await admin.setOffsets({ groupId: name, topic: name, partitions: [{ partition: 0, offset: '1' }] })
    const [fetched] = await admin.fetchOffsets({ groupId: name, topics: [name] })
    const committed = Object.fromEntries(fetched.partitions.map(({ partition, offset }) => [partition, Number(offset)]))
    assert.deepEqual(committed, { 0: 1, 1: 5, 2: 5, 3: 5 })
    await admin.deleteGroups([name])
    return null
  },

  // One is committed, one aborted, one committed again. Result: what a reader of committed messages sees.
  async transactions() {
    await createTopic(2)
    await withProducer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      for (const [n, ending] of ['commit', 'abort', 'commit'].entries()) {
        const transaction = await producer.transaction()
        const messages = [{ partition: 0, value: `${n}-a` }, { partition: 1, value: `${n}-b` }]
        await transaction.send({ topic: name, acks: -1, messages })
        await transaction[ending]()
      }
    })
    return (await read(4)).map(text)
  },

  // Consume, transform, produce; offsets go with the transaction, and every second one is aborted and made again.
  // Result: the copies.
  async copy() {
    await createTopic(2)
    await fill(1, 30)
    await withProducer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      const copied = []
      const consumer = kafka.consumer({ groupId: name, ...READER, maxBytesPerPartition: 300 })
      await consumer.connect()
      await consumer.subscribe({ topics: [name], fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        eachBatch: async ({ batch, resolveOffset }) => {
          if (batch.partition !== 0) return
          for (const ending of ['abort', 'commit']) {
            const transaction = await producer.transaction()
            await transaction.send({ topic: name, acks: -1, messages: batch.messages.map(({ value }) => ({ partition: 1, value })) })
            const offset = String(Number(batch.lastOffset()) + 1)
            const topics = [{ topic: name, partitions: [{ partition: 0, offset }] }]
            await transaction.sendOffsets({ consumerGroupId: name, topics })
            await transaction[ending]()
          }
          resolveOffset(batch.lastOffset())
          copied.push(...batch.messages)
        },
      })
      await eventually('all is copied', () => copied.length >= 30)
      await consumer.disconnect()
    })
    const [{ partitions }] = await admin.fetchOffsets({ groupId: name, topics: [name] })
    assert.equal(partitions.find(({ partition }) => partition === 0).offset, '30')
    return (await read(60)).filter(({ partition }) => partition === 1).map(text)
  },

  // A second producer of the same transactional id fences the first one, whose transaction is aborted.
  async zombie() {
    await createTopic(1)
    const options = { transactionalId: name, idempotent: true, maxInFlightRequests: 1 }
    await withProducer(options, async (first) => {
      const begun = await first.transaction()
      await begun.send({ topic: name, acks: -1, messages: [{ value: 'of the zombie' }] })
      await withProducer(options, async (second) => {
        const transaction = await second.transaction()
        await transaction.send({ topic: name, acks: -1, messages: [{ value: 'of its successor' }] })
        await transaction.commit()
      })
      await assert.rejects(begun.commit(), ({ type }) => ['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED'].includes(type))
    })
    return (await read(1)).map(text)
  },
}

async function main() {
  await admin.connect()
  const result = await stories[story]()
  await admin.disconnect()
  console.log(JSON.stringify(result))
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
