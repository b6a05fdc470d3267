export function DevStates() {
  return <h1>States</h1>
}
