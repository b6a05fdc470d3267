/** Stores parameters that repeat in the OpenAPI document once. */
import { type Document, operationsOf, type Parameter, withOperations } from "./openapi-document.ts"

/**
 * A copy of the document that stores a parameter once if at least three operations have it. Path parameters stay in
 * place.
 */
export function withSharedParameters<T extends Document>(document: T): T {
  const all = [...operationsOf(document).values()].flatMap(({ parameters = [] }) => parameters)
  const byName = Object.groupBy(
    all.flatMap(each => ("in" in each && each.in !== "path" ? [each] : [])),
    ({ name }) => name,
  )
  const shared = Object.values(byName).flatMap((same = []) => mostFrequent(same))
  const names = new Map(shared.map(each => [JSON.stringify(each), each.name]))
  const parameters = {
    ...document.components?.parameters,
    ...Object.fromEntries(shared.map(each => [each.name, each])),
  }
  const found = { ...document, components: { ...document.components, parameters } }
  return withOperations(found, operation => {
    if (!operation.parameters) return operation
    const own = operation.parameters.map(each => {
      const name = names.get(JSON.stringify(each))
      return name ? { $ref: `#/components/parameters/${name}` } : each
    })
    return { ...operation, parameters: own }
  })
}

/** The form that most parameters of the same name have, if at least three parameters have it. */
function mostFrequent(same: Parameter[]): Parameter[] {
  const forms = Object.values(Object.groupBy(same, each => JSON.stringify(each)))
  const [most = []] = forms.toSorted((a = [], b = []) => b.length - a.length)
  return most.length > 2 ? most.slice(0, 1) : []
}
